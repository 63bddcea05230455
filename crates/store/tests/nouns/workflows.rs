//! Workflows: who may go on with one, and that nobody else can.

use std::time::Duration;

use model::{
    id::WorkflowId,
    project::Usage,
    size::{Replicas, Scaling},
    time::Millis,
    topology::Topology,
    workflow::WorkflowKind,
};
use runtime::clock::Clock;
use store::Workflow;

use super::{AT, CAUSE, Ground, deployment, here, progress};

const TTL: Duration = Duration::from_millis(150);

fn workflow(number: u128) -> Workflow {
    Workflow {
        id: WorkflowId::sample(number),
        kind: WorkflowKind::Deploy,
        subject: deployment(number).id.to_string(),
        step: "pending".to_owned(),
        state: format!(r#"{{"number":{number}}}"#),
        wake_at: AT,
        created_at: AT,
    }
}

async fn begin(ground: &Ground, number: u128) -> WorkflowId {
    ground.write(async |write| write.create_workflow(&workflow(number)).await).await;
    workflow(number).id
}

/// The open ones, by number, and whether somebody holds them.
async fn open(ground: &Ground) -> Vec<(u128, bool)> {
    let open = ground.store.open_workflows(None, 10).await.expect("they can be listed");
    let number = |id: WorkflowId| (1..10).find(|number| WorkflowId::sample(*number) == id).expect("ours");
    open.iter().map(|open| (number(open.workflow.id), !open.held_for.is_zero())).collect()
}

pub async fn a_workflow_reads_back_and_is_begun_once(ground: Ground) {
    let id = begin(&ground, 1).await;
    let again = Workflow { step: "again".to_owned(), ..workflow(1) };
    let ((), stamped) = ground.stamped(async |write| write.create_workflow(&again).await).await;
    assert_eq!(stamped, [""; 0], "nobody watches workflows");
    let read = ground.write(async |write| write.workflow(id).await).await;
    assert_eq!(read, Some(workflow(1)));
    let about = ground.store.open_workflows_about(WorkflowKind::Deploy, &deployment(1).id).await;
    assert_eq!(about, Ok(vec![workflow(1)]));
    let other = ground.store.open_workflows_about(WorkflowKind::Retire, &deployment(1).id).await;
    assert_eq!(other, Ok(vec![]));
}

pub async fn a_claim_is_had_by_one_until_it_runs_out(ground: Ground) {
    let id = begin(&ground, 1).await;
    let claim = async |who: &str| ground.write(async |write| write.claim_workflow(id, who, TTL).await).await;
    let (_, first) = claim("one").await.expect("nobody has it");
    assert_eq!(claim("two").await, None);
    assert_eq!(open(&ground).await, [(1, true)]);
    Clock::system().sleep(TTL * 2).await;
    assert_eq!(open(&ground).await, [(1, false)]);
    let (_, second) = claim("two").await.expect("it has run out");
    assert_eq!(second.epoch, first.epoch + 1);
    let holds = async |claim| ground.write(async |write| write.hold_workflow(claim).await).await;
    assert!(!holds(&first).await, "whoever slept finds another epoch");
    assert!(holds(&second).await);
}

pub async fn what_is_held_lasts_with_each_write_and_is_due_if_its_holder_ends(ground: Ground) {
    let id = begin(&ground, 1).await;
    let later = Millis(AT.0 + 1_000_000);
    let claimed = ground.write(async |write| write.claim_workflow(id, "one", TTL).await).await;
    let (_, claim) = claimed.expect("nobody has it");
    ground.write(async |write| write.release_workflow(&claim, later).await).await;
    assert_eq!(open(&ground).await, [(1, false)], "let go of, it is anybody's");
    let wake = async || ground.store.open_workflows(None, 10).await.expect("listed")[0].workflow.wake_at;
    assert_eq!(wake().await, later);
    // Woken by news, taken, and never heard of again.
    ground.write(async |write| write.claim_workflow(id, "two", TTL).await).await.expect("it is free");
    assert!(wake().await < AT, "it does not sleep until the time that it waited for before");
}

pub async fn a_step_and_an_end_read_back(ground: Ground) {
    let id = begin(&ground, 1).await;
    begin(&ground, 2).await;
    ground.write(async |write| write.step_workflow(id, "deploying", "{}", AT).await).await;
    let read = ground.write(async |write| write.workflow(id).await).await.expect("it is there");
    assert_eq!((read.step.as_str(), read.state.as_str()), ("deploying", "{}"));
    ground.write(async |write| write.end_workflow(id, "ready", "{}", AT).await).await;
    assert_eq!(open(&ground).await, [(2, false)]);
    let claimed = ground.write(async |write| write.claim_workflow(id, "one", TTL).await).await;
    assert_eq!(claimed, None, "what is over is not taken up again");
    let pruned = async |before| ground.write(async |write| write.prune_workflows(before, 10).await).await;
    assert_eq!(pruned(AT).await, 0);
    assert_eq!(pruned(Millis(AT.0 + 1)).await, 1);
    assert_eq!(ground.write(async |write| write.workflow(id).await).await, None);
}

pub async fn what_runs_is_counted_at_its_largest(ground: Ground) {
    let deployment = deployment(1);
    let scaling = Scaling::Fixed(Replicas::new(3).expect("a number"));
    let row = Topology { placement: here(), scaling, ..Topology::sample().of(deployment.id) };
    let status = progress(model::deployment::Status::Deploying).status;
    ground.write(async |write| write.put_topology(&row, &deployment, status, &CAUSE).await).await;
    let usage = ground.write(async |write| write.usage(deployment.workspace).await).await;
    let expected = Usage {
        cpu_millis: 750,
        memory_mib: 768,
        storage_mib: 0,
        deployments: 2,
        environments: 1,
        hostnames: 0,
    };
    assert_eq!(usage, expected);
    let stopped = row.stopped();
    ground.write(async |write| write.put_topology(&stopped, &deployment, status, &CAUSE).await).await;
    let usage = ground.write(async |write| write.usage(deployment.workspace).await).await;
    assert_eq!((usage.cpu_millis, usage.memory_mib), (0, 0));
}

pub async fn what_was_chosen_is_remembered(ground: Ground) {
    let id = model::environment::Environment::sample().id;
    let pinned = async || ground.store.is_pinned(id).await.expect("it is there");
    assert!(!pinned().await);
    let ((), stamped) = ground.stamped(async |write| write.set_pinned(id, true).await).await;
    assert_eq!(stamped, [""; 0], "no sentinel has to know");
    assert!(pinned().await);
}

pub async fn one_replica_sweeps_at_a_time(ground: Ground) {
    let takes = async |who: &str| ground.write(async |write| write.take_broom(who, TTL).await).await;
    assert!(takes("one").await);
    assert!(!takes("two").await);
    assert!(takes("one").await, "whoever has it keeps it");
    Clock::system().sleep(TTL * 2).await;
    assert!(takes("two").await);
    assert_eq!(open(&ground).await, [], "it is no workflow");
}

pub async fn old_events_go_but_those_that_are_kept(ground: Ground) {
    ground.write(async |write| write.put_event(&model::event::Event::sample()).await).await;
    let pruned = ground.store.prune_events(Millis(i64::MAX), 10).await;
    assert_eq!(pruned, Ok(0), "what the tail keeps is never removed, however old");
}
