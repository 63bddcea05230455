//! From a row in the store to objects in a real cluster, to instances in the store again.

use agent::object::{Ref, Type};
use harness::{
    audit::Audit,
    eventually,
    ground::{Ground, fixed},
    kubernetes::Kubernetes,
    runner::{self, Runner},
};
use model::instance::Status;

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_runs_and_ends_as_its_row_says() {
    let ground = Ground::lay().await;
    let kubernetes = Kubernetes::connect().await;
    kubernetes.grant(ground.names.namespace.as_str()).await;
    let audit = Audit::from_now();
    let agent = Runner::start(runner::config(&ground, "story")).await;
    let deployment = ground.names.deployment(1);
    ground.put_deployment(&deployment, fixed(3)).await;
    let set = Ref::new(Type::ReplicaSet, ground.names.namespace.as_str(), deployment.k8s_name.as_str());
    let instances = eventually("three instances run", async || {
        let instances = ground.instances(deployment.id).await;
        let running = instances.iter().filter(|instance| instance.status == Status::Running).count();
        if running == 3 { Ok(instances) } else { Err(format!("{instances:?}")) }
    })
    .await;
    println!("{instances:#?}");
    assert!(kubernetes.get(&set).await.is_some());
    ground.remove_deployment(&deployment).await;
    eventually("nothing is left", async || {
        let left = ground.instances(deployment.id).await;
        let set = kubernetes.get(&set).await;
        if left.is_empty() && set.is_none() { Ok(()) } else { Err(format!("{left:?} {set:?}")) }
    })
    .await;
    for request in audit.of_agent("story") {
        println!(
            "{} {} {}/{} {}",
            request.verb, request.resource, request.namespace, request.name, request.code
        );
    }
    agent.stop().await;
    ground.end().await;
}
