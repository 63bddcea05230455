//! Tombstones, and what is left when they are pruned.

use model::{
    cluster::{Epoch, Sequence},
    deployment::{DesiredState, Status, Step, StepKind},
    environment::Environment,
    event::Event,
    id::InstanceId,
    instance::Instance,
    network_policy::NetworkPolicy,
    route::Route,
    sentinel::Sentinel,
    time::Millis,
    token::Token,
    topology::Topology,
};
use runtime::clock::Timestamp;
use store::{Error, Report, Reported, Result, Topic, Write};

use super::{
    AT, CAUSE, Ground, deployment, here, place,
    round_trips::{key, keyspace},
    there,
};

const AFTER: Timestamp = Timestamp::from_millis(AT.0 + 1);

async fn put_everything(write: &mut Write) -> Result<()> {
    place(write, 1, &here()).await?;
    write.put_sentinel(&Sentinel::sample(), &CAUSE).await?;
    write.put_network_policy(&NetworkPolicy::sample(), &CAUSE).await?;
    write.put_route(&Route::sample(), &CAUSE).await?;
    write.put_keyspace(&keyspace()).await?;
    write.put_key(&key(), &CAUSE).await?;
    write.put_token(&Token::sample(), &CAUSE).await?;
    let step = Step { kind: StepKind::Starting, started_at: AT, ended_at: None, note: None, error: None };
    write.put_step(deployment(1).id, &step).await?;
    write.put_event(&Event::sample()).await.map(drop)
}

async fn remove_everything(write: &mut Write) -> Result<Vec<bool>> {
    let route = Route::sample();
    Ok(vec![
        write.remove_topology(deployment(1).id, &here(), &CAUSE).await?,
        write.remove_sentinel(Sentinel::sample().id, &CAUSE).await?,
        write.remove_network_policy(NetworkPolicy::sample().id, &CAUSE).await?,
        write.remove_route(route.environment, &route.hostname, &CAUSE).await?,
        write.remove_key(key().id, &CAUSE).await?,
        write.remove_token(Token::sample().id, &CAUSE).await?,
    ])
}

async fn report_a_pod(ground: &Ground) {
    let epoch: Epoch = ground.begin(&here()).await;
    let report = Report {
        placement: here(),
        epoch: Some(epoch),
        sequence: Sequence(1),
        deployment: deployment(1).k8s_name,
        change: Reported::Update(vec![(InstanceId::sample(1), Instance::sample(1))]),
    };
    ground.write(async |write| write.take_reports(std::slice::from_ref(&report), AT).await).await;
}

pub async fn a_tombstone_goes_with_its_row_and_raises_the_floor(ground: Ground) {
    ground.write(put_everything).await;
    report_a_pod(&ground).await;
    assert_eq!(ground.write(remove_everything).await, [true; 6]);
    let (again, stamped) = ground.stamped(remove_everything).await;
    assert_eq!((again, stamped), (vec![false; 6], vec![]), "what is gone cannot go again");
    let graves = ground.items().await.into_iter().filter(|item| item.gone);
    let newest = graves.clone().map(|item| item.version).max();
    assert_eq!(graves.count(), 9, "three rows have two tombstones");
    let unpruned = ground.store.prune(Timestamp::from_millis(AT.0)).await.unwrap();
    let since = ground.store.position().await.unwrap().since;
    assert_eq!(unpruned, since, "they are not older than themselves");

    let floor = ground.store.prune(AFTER).await.unwrap();
    assert_eq!(Some(floor), newest);
    assert_eq!(ground.store.position().await.unwrap().floor, floor);
    assert!(!ground.items().await.iter().any(|item| item.gone));
    // The rows themselves: a new one with the same names is a new one.
    assert_eq!(ground.store.instances_of(deployment(1).id).await.unwrap(), []);
    let again = Sentinel { k8s_name: "another".parse().unwrap(), ..Sentinel::sample() };
    ground.write(async |write| write.put_sentinel(&again, &CAUSE).await).await;
    assert_eq!(
        ground.store.sentinel(again.id).await.unwrap().0,
        again,
        "its name was for as long as it lived"
    );
    let event = Event::sample();
    ground.state(&Topic::Events, &event.id).await;
}

pub async fn a_stopped_row_stays_after_its_tombstone(ground: Ground) {
    let mut sentinel = Sentinel::sample();
    ground.write(put_everything).await;
    report_a_pod(&ground).await;
    sentinel.desired.state = DesiredState::Stopped;
    let stopped = Topology::sample().stopped();
    let stop = async |write: &mut Write| {
        write.put_sentinel(&sentinel, &CAUSE).await?;
        write.put_topology(&stopped, &deployment(1), Status::Deploying, &CAUSE).await
    };
    let (_, stamped) = ground.stamped(stop).await;
    assert_eq!(stamped, ["sentinels.version", "deployment_topology.version"], "only agents are told");
    let topic = Topic::Deployments(here());
    assert!(ground.item(&topic, &deployment(1).id).await.unwrap().gone);

    ground.store.prune(AFTER).await.unwrap();
    assert_eq!(ground.item(&topic, &deployment(1).id).await, None, "its tombstone is pruned");
    assert_eq!(ground.store.sentinel(sentinel.id).await.unwrap().0, sentinel);
    assert_eq!(ground.store.instances_of(deployment(1).id).await.unwrap().len(), 1);
    ground.state(&Topic::Routing(Environment::sample().id, here()), &deployment(1).id).await;

    ground
        .write(async |write| {
            write.put_topology(&Topology::sample(), &deployment(1), Status::Ready, &CAUSE).await?;
            write.put_sentinel(&Sentinel::sample(), &CAUSE).await
        })
        .await;
    ground.state(&topic, &deployment(1).id).await;
    ground.state(&Topic::Sentinels(here()), &sentinel.id).await;
}

pub async fn an_environment_goes_after_everything_in_it(ground: Ground) {
    let environment = Environment::sample().id;
    ground.write(put_everything).await;
    ground.write(async |write| write.remove_environment(environment, &CAUSE).await).await;
    let unknown = Err(Error::NotFound(environment.to_string()));
    assert_eq!(ground.store.environment(environment).await, unknown, "a tombstone is no environment");
    assert_eq!(ground.store.environments(Environment::sample().app, None, 10).await.unwrap(), []);
    ground.store.prune(AFTER).await.unwrap();
    assert_eq!(ground.item(&Topic::Environment(environment), &environment).await, None);
    assert_eq!(ground.store.deployment(deployment(1).id).await.unwrap().0, deployment(1), "it still runs");

    ground.write(remove_everything).await;
    ground.store.prune(AFTER).await.unwrap();
    let unknown = Error::NotFound(deployment(1).id.to_string());
    assert_eq!(ground.store.deployment(deployment(1).id).await, Err(unknown));
    assert_eq!(ground.store.steps_of(deployment(1).id).await.unwrap(), []);
    let again = Environment { created_at: Millis(77), ..Environment::sample() };
    ground.write(async |write| write.put_environment(&again, &CAUSE).await).await;
    let stored = ground.store.environment(environment).await.unwrap();
    assert_eq!((stored.noun, stored.revision), (again, 1), "its row was gone");
}

pub async fn a_cluster_goes_after_everything_in_it(ground: Ground) {
    ground.write(put_everything).await;
    ground
        .write(async |write| {
            write.remove_cluster(&here(), &CAUSE).await?;
            write.remove_cluster(&there(), &CAUSE).await
        })
        .await;
    assert_eq!(ground.store.clusters().await.unwrap(), []);
    ground.store.prune(AFTER).await.unwrap();
    assert_eq!(ground.item(&Topic::Clusters, &here()).await, None);
    ground.write(remove_everything).await;
    ground.store.prune(AFTER).await.unwrap();
    ground.write(async |write| write.put_cluster(&here(), &CAUSE).await).await;
    assert_eq!(ground.store.cluster(&here()).await.unwrap().epoch, Epoch(0));
}

pub async fn what_was_removed_lives_again_when_it_is_put(ground: Ground) {
    ground.write(put_everything).await;
    ground.write(remove_everything).await;
    let environment = Environment::sample();
    ground
        .write(async |write| {
            write.remove_environment(environment.id, &CAUSE).await?;
            write.put_environment(&environment, &CAUSE).await
        })
        .await;
    ground.write(put_everything).await;
    assert!(!ground.items().await.iter().any(|item| item.gone));
    assert_eq!(ground.store.environment(environment.id).await.unwrap().noun, environment);
}
