//! The printed role: it is enough for everything that an agent does, and nothing of it is too much.

use std::{collections::BTreeSet, time::Duration};

use harness::{
    audit::{Audit, Request},
    eventually,
    ground::Ground,
    kubernetes::Kubernetes,
    runner::{self, Runner},
    story::Story,
};
use serde_json::Value;

/// What may be done, or was: a verb and a resource.
type Pair = (String, String);

#[tokio::test(flavor = "multi_thread")]
async fn the_story_needs_the_printed_role_and_all_of_it() {
    let ground = Ground::lay().await;
    let kubernetes = Kubernetes::connect().await;
    // A namespace of its own for the Lease: the one of the workspace is the agent's to make.
    let home = format!("krane-{}", ground.names.place.shard);
    kubernetes.grant(&home).await;
    let audit = Audit::from_now();
    let mut config = runner::config(&ground, &format!("role-{}", ground.names.place.shard));
    config.namespace.clone_from(&home);
    config.sentinel.min_ready = Duration::ZERO;
    // Lists are for what a watch may have missed.
    config.pace.audit = Duration::from_secs(2);
    let agent = Runner::start(config.clone()).await;
    // Two are the normal case, and the second needs what the first does not.
    let mut other = config.clone();
    other.instance_id = Some(format!("role-standby-{}", ground.names.place.shard));
    let standby = Runner::start(other).await;
    let names = [agent.instance.clone(), standby.instance.clone()];
    let story = Story { ground: &ground, kubernetes: &kubernetes, config: &config };
    story.of_a_deployment().await;
    story.of_a_policy().await;
    story.of_a_sentinel().await;
    // Kubernetes makes the account too, and is often quicker.
    let created = ("create".to_owned(), "serviceaccounts".to_owned());
    story.of_an_account(|| used(&audit, &names).contains(&created)).await;

    let granted = granted(&home);
    let unused = eventually("all that is granted is used", async || {
        let used = used(&audit, &names);
        let unused: BTreeSet<Pair> = granted.difference(&used).cloned().collect();
        if unused.is_empty() { Ok(unused) } else { Err(format!("{unused:?}")) }
    })
    .await;
    assert_eq!(unused, BTreeSet::new());
    let requests = asked(&audit, &names);
    let refused: Vec<&Request> =
        requests.iter().filter(|request| matches!(request.code, 401 | 403)).collect();
    assert_eq!(refused, [] as [&Request; 0], "it asked for more than it may");
    println!("{} requests, {} of {} pairs used", requests.len(), granted.len(), granted.len());
    let written = audit.of_agent(&standby.instance).into_iter().filter(Request::is_write).count();
    assert_eq!(written, 0, "a standby writes nothing");
    standby.stop().await;
    agent.stop().await;
    ground.end().await;
}

fn asked(audit: &Audit, instances: &[String]) -> Vec<Request> {
    instances.iter().flat_map(|instance| audit.of_agent(instance)).collect()
}

/// Every pair of the role as it is printed.
fn granted(namespace: &str) -> BTreeSet<Pair> {
    let texts = |list: &Value| -> Vec<String> {
        let list = list.as_array().expect("a list").iter();
        list.map(|text| text.as_str().expect("a text").to_owned()).collect()
    };
    let manifests = agent::rbac::manifests(namespace);
    let rules = manifests.iter().filter_map(|manifest| manifest["rules"].as_array()).flatten();
    let pairs = rules.flat_map(|rule| {
        let resources = texts(&rule["resources"]);
        let of_verb =
            move |verb: String| resources.clone().into_iter().map(move |resource| (verb.clone(), resource));
        texts(&rule["verbs"]).into_iter().flat_map(of_verb)
    });
    pairs.collect()
}

/// Every pair that was needed. An apply that makes an object is a patch that is also held to `create`.
fn used(audit: &Audit, instances: &[String]) -> BTreeSet<Pair> {
    let pairs =
        asked(audit, instances).into_iter().filter(|request| request.code < 500).flat_map(|request| {
            let creates = request.verb == "patch" && request.code == 201;
            let also = creates.then(|| ("create".to_owned(), request.resource.clone()));
            [Some((request.verb, request.resource)), also].into_iter().flatten()
        });
    pairs.collect()
}
