//! Answers that one object gets, in front of an API server that would give others.

use std::time::Duration;

use agent::object::Type;
use harness::{
    eventually,
    faults::{Answer, Fate, Record},
    ground::fixed,
};
use model::{cluster::ApplyReason, deployment::Deployment};

use crate::{ATTEMPTS_MAX, Scene, WHILE};

/// What a `ReplicaSet` is answered, and what is to be told of it.
const ANSWERS: [(u16, &str, Option<u64>, ApplyReason); 6] = [
    (409, "Conflict", None, ApplyReason::Conflict),
    (410, "Expired", None, ApplyReason::Unavailable),
    (422, "Invalid", None, ApplyReason::Refused),
    (429, "TooManyRequests", Some(3), ApplyReason::Unavailable),
    (500, "InternalError", None, ApplyReason::Unavailable),
    (503, "ServiceUnavailable", None, ApplyReason::Unavailable),
];

fn gaps(records: &[Record]) -> Vec<Duration> {
    records.windows(2).map(|pair| pair[1].begun_at - pair[0].begun_at).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_one_object_is_answered_no_other_waits() {
    let scene = Scene::open().await;
    let poisoned: Vec<Deployment> = (1..=6).map(|number| scene.deployment(number)).collect();
    let names: Vec<String> = poisoned.iter().map(|deployment| deployment.k8s_name.to_string()).collect();
    scene.faults.set(move |asked| {
        let nth = names.iter().position(|name| asked.is_write() && asked.is_of("replicasets", name));
        nth.map_or(Fate::Pass, |nth| {
            let (code, reason, retry_after, _) = ANSWERS[nth];
            Fate::Answer(Answer { retry_after, ..Answer::status(code, reason) })
        })
    });
    scene.ground.put_deployments(&poisoned, fixed(1)).await;
    for (deployment, (code, _, _, reason)) in poisoned.iter().zip(ANSWERS) {
        let error = scene.is_told(deployment, reason).await;
        assert!(error.message.as_str().contains(&code.to_string()), "{error:?}");
    }
    scene.another_runs(10).await;
    tokio::time::sleep(WHILE).await;
    for (deployment, (code, _, retry_after, _)) in poisoned.iter().zip(ANSWERS) {
        let writes = scene.writes(deployment);
        println!("{code}: {} attempts, {:?} apart", writes.len(), gaps(&writes));
        assert!((2..=ATTEMPTS_MAX).contains(&writes.len()), "{code} was asked {} times", writes.len());
        let at_least = retry_after.map_or(Duration::from_millis(400), Duration::from_secs);
        assert!(gaps(&writes).iter().all(|gap| *gap >= at_least), "{code}: {:?}", gaps(&writes));
    }
    scene.another_runs(11).await;
    scene.faults.lift();
    for deployment in &poisoned {
        scene.is_well(deployment).await;
    }
    scene.end().await;
}

/// Every write of two deployments is carried out, and no answer ever comes, or the connection breaks instead.
#[tokio::test(flavor = "multi_thread")]
async fn what_may_have_happened_is_looked_up_and_not_repeated() {
    let scene = Scene::open().await;
    let deployments = [1, 2].map(|number| scene.deployment(number));
    let [lost, held] = deployments.clone().map(|deployment| deployment.k8s_name.to_string());
    scene.faults.set(move |asked| match asked {
        asked if !asked.is_write() => Fate::Pass,
        asked if asked.name == lost => Fate::Lost,
        asked if asked.name == held => Fate::Held,
        _ => Fate::Pass,
    });
    for deployment in &deployments {
        scene.put(deployment).await;
        scene.is_told(deployment, ApplyReason::Unavailable).await;
    }
    scene.another_runs(3).await;
    for deployment in &deployments {
        // The fault is still there: each attempt finds what the one before had done.
        scene.is_well(deployment).await;
        let lines: Vec<String> = scene.writes(deployment).iter().map(|record| record.asked.line()).collect();
        let once =
            ["patch replicasets krane", "patch replicasets krane-scale", "patch poddisruptionbudgets krane"];
        assert_eq!(lines, once, "something was written twice, or not at all");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_a_type_that_is_not_there_is_told_and_nothing_else_waits() {
    let scene = Scene::open().await;
    scene.another_runs(1).await;
    scene.faults.set(|asked| {
        let is_missing = asked.is_write() && asked.resource == "ciliumnetworkpolicies";
        let answer = Answer { code: 404, retry_after: None, body: "404 page not found\n".to_owned() };
        if is_missing { Fate::Answer(answer) } else { Fate::Pass }
    });
    let policy = scene.ground.names.policy(1);
    scene.ground.put_policy(&policy).await;
    let error = eventually("it is told", async || {
        scene.ground.policy_error(policy.id).await.ok_or_else(|| "nothing is told".to_owned())
    })
    .await;
    assert_eq!(error.reason, ApplyReason::Refused, "{error:?}");
    scene.another_runs(2).await;
    tokio::time::sleep(WHILE / 2).await;
    let is_its = |record: &Record| record.asked.name == policy.name.as_str();
    let attempts = scene.faults.writes().into_iter().filter(is_its).count();
    assert!((2..=ATTEMPTS_MAX).contains(&attempts), "{attempts} attempts");
    scene.faults.lift();
    eventually("the policy is there", async || {
        let names =
            scene.kubernetes.names(Type::CiliumNetworkPolicy, scene.ground.names.namespace.as_str()).await;
        let error = scene.ground.policy_error(policy.id).await;
        let is_well = names.iter().any(|name| *name == policy.name.as_str()) && error.is_none();
        if is_well { Ok(()) } else { Err(format!("{names:?} {error:?}")) }
    })
    .await;
    scene.end().await;
}

/// No connection for a while, and every stream cut, as when an API server is started again.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_away_is_not_stormed() {
    let away = Duration::from_secs(4);
    let scene = Scene::open().await;
    let before = scene.another_runs(1).await;
    scene.faults.forget();
    scene.faults.set(|_| Fate::Refused);
    scene.faults.cut();
    let put_meanwhile = scene.deployment(2);
    scene.put(&put_meanwhile).await;
    tokio::time::sleep(away).await;
    let asked = scene.faults.records();
    let tries = |record: &&Record| record.asked.verb == "watch" || record.asked.verb == "list";
    let watches = asked.iter().filter(tries).count();
    println!("{} requests in {away:?}, {watches} of them watches of {} types", asked.len(), Type::ALL.len());
    // Each type's watch waits 100 ms at least and then twice as long each time; what is put, half a second.
    assert!(watches >= Type::ALL.len() && watches <= 8 * Type::ALL.len(), "{watches} watches");
    assert!(scene.writes(&put_meanwhile).len() <= ATTEMPTS_MAX);
    scene.faults.lift();
    scene.is_well(&put_meanwhile).await;

    // The watches are back: what somebody does to what was there before is seen.
    let set = scene.object(Type::ReplicaSet, &before);
    scene.kubernetes.delete(&set).await;
    scene.is_well(&before).await;
    eventually("it is made again", async || {
        scene.kubernetes.get(&set).await.map(drop).ok_or_else(|| "it is not there".to_owned())
    })
    .await;
    scene.another_runs(3).await;
    scene.end().await;
}
