//! Deployments through the API, from POST to requests that are answered: a control plane, two regions, their sentinels and
//! what they lead to, all of them processes.

#![allow(clippy::disallowed_methods, reason = "these tests are about real time")]

#[path = "deploy_story/world.rs"]
mod world;

use serde_json::{Value, json};
use world::World;

#[test]
fn what_is_deployed_answers_in_two_regions_and_what_fails_leaves_it_serving() {
    let world = World::start();
    let first = world.deploy(&[], json!({}));
    let detail = world.ended(&first, "ready");
    assert_eq!(detail["instances"].as_array().expect("instances").len(), 2, "one in each region: {detail:#}");
    world.answers(&first);
    let load = world.load(2);
    let probe = json!({ "path": "/", "interval": 1, "timeout": 1, "failure_threshold": 2 });
    let failing = [
        (&["ErrImagePull", "ImagePullBackOff"][..], "example/none:1", json!({})),
        (&["CrashLoopBackOff"], "example/app:1", json!({ "command": ["sh", "-c", "exit 3"] })),
        (
            &["failed its liveness probe", "Unhealthy"],
            "example/app:1",
            json!({ "command": ["sleep", "1000"], "health": probe }),
        ),
    ];
    for (reasons, image, settings) in failing {
        let id = world.deploy_any(image, settings);
        let reason = world.ended(&id, "failed")["reason"].to_string();
        println!("{reason}");
        assert!(reasons.iter().any(|known| reason.contains(known)), "{reason} is none of {reasons:?}");
    }
    let (count, bad) = load.end();
    assert!(bad.is_empty(), "{} of {count} failed: {:?}", bad.len(), &bad[..bad.len().min(3)]);
    world.answers(&first);
}

#[test]
fn promoting_and_rolling_back_under_load_fails_no_request() {
    let world = World::start();
    let first = world.deploy(&[], json!({}));
    world.ended(&first, "ready");
    world.answers(&first);
    let load = world.load(2);
    let second = world.deploy(&[], json!({}));
    world.ended(&second, "ready");
    world.answers(&second);
    for _ in 0..2 {
        world.verb(&first, "promote");
        world.answers(&first);
        world.verb(&second, "promote");
        world.answers(&second);
        world.verb(&second, "rollback");
        world.answers(&first);
        world.verb(&second, "promote");
        world.answers(&second);
    }
    let (count, bad) = load.end();
    println!("{count} requests");
    assert!(count > 100, "{count} requests are no load");
    assert!(bad.is_empty(), "{} of {count} failed: {:?}", bad.len(), &bad[..bad.len().min(3)]);
}

fn canary(pause: u32) -> Value {
    json!({ "strategy": { "kind": "canary", "steps": [50, 100], "pause": pause } })
}

/// The figures and the verdict of the last judgement of a canary.
fn judged(world: &World, id: &str) -> (String, String, String) {
    let events = world.api.get(&format!("/v1/deployments/{id}/events?limit=100"));
    let all = events["data"].as_array().expect("events");
    let last = all.iter().find(|event| event["kind"] == "canary.judged").expect("it was judged");
    let field = |name: &str| last["fields"][name].as_str().unwrap_or_default().to_owned();
    (field("verdict"), field("reason"), field("message"))
}

#[test]
fn a_canary_is_judged_by_the_requests_that_sentinels_carried() {
    let world = World::start();
    let baseline = world.deploy(&["--latency", "10ms"], json!({}));
    world.ended(&baseline, "ready");
    world.answers(&baseline);
    let load = world.load(8);

    let worse = world.deploy(&["--latency", "10ms", "--errors", "8"], canary(2));
    let detail = world.ended(&worse, "failed");
    let (verdict, reason, figures) = judged(&world, &worse);
    println!("errors: {verdict} {reason}: {figures}");
    assert_eq!(verdict, "roll_back");
    assert!(figures.contains("% errors"), "{figures}");
    assert!(detail["reason"].to_string().contains("CanaryRolledBack"), "{detail:#}");

    let slow = world.deploy(&["--latency", "100ms"], canary(10));
    world.ended(&slow, "failed");
    let (verdict, reason, figures) = judged(&world, &slow);
    println!("slow: {verdict} {reason}: {figures}");
    assert_eq!(verdict, "roll_back");
    assert!(reason.contains("slower"), "{reason}: {figures}");

    let good = world.deploy(&["--latency", "10ms"], canary(2));
    world.ended(&good, "ready");
    println!("good: {:?}", judged(&world, &good));
    assert_eq!(judged(&world, &good).0, "promote");
    world.until("it has everything", || {
        let routes = world.api.get(&format!("/v1/routes?environment_id={}", world.environment));
        let live = routes["data"].as_array()?.iter().find(|route| route["hostname"] == world::HOST)?.clone();
        let targets = live["targets"].as_array()?;
        (targets.len() == 1 && targets[0]["deployment_id"] == good.as_str()).then_some(())
    });
    load.end();

    // Nobody asks: it waits for somebody.
    let quiet = world.deploy(&["--latency", "10ms"], canary(2));
    world.until("it pauses", || {
        let detail = world.api.get(&format!("/v1/deployments/{quiet}"));
        detail["steps"].to_string().contains("paused: not enough traffic").then_some(())
    });
    world.verb(&quiet, "cancel");
    world.ended(&quiet, "cancelled");
}

#[test]
fn both_sides_of_a_canary_that_fail_alike_go_on() {
    let world = World::start();
    let baseline = world.deploy(&["--errors", "10"], json!({}));
    world.ended(&baseline, "ready");
    let load = world.load(8);
    let alike = world.deploy(&["--errors", "10"], canary(2));
    world.ended(&alike, "ready");
    let (verdict, _, figures) = judged(&world, &alike);
    println!("alike: {verdict}: {figures}");
    assert_eq!(verdict, "promote");
    let (count, bad) = load.end();
    assert!(bad.len() * 20 > count, "{} of {count} failed: both did", bad.len());
}
