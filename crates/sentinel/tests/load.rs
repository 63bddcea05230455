//! F8: under constant load, whatever instances do, no request fails that a healthy one could have served; and no
//! reader of routes sees half a switch.

#![expect(clippy::unwrap_used, reason = "these are tests, though their functions do not look so")]

#[path = "load/client.rs"]
mod client;
#[path = "load/instance.rs"]
mod instance;
#[path = "scene/scene.rs"]
mod scene;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use model::deployment::Protocol;
use runtime::shutdown::Tasks;
use sentinel::config::ProxyConfig;

use client::{Asked, Load};
use instance::{Behaviour, Fleet, Generations};
use scene::{HOST, Scene, deployment, route};

const OTHER_HOST: &str = "b.example.com";

/// Requests of each phase, at least.
const EACH: u64 = 4000;

/// Clients that ask all the time.
const CLIENTS: usize = 12;

fn config() -> ProxyConfig {
    ProxyConfig { response_headers_timeout: Duration::from_millis(400), ..ProxyConfig::default() }
}

/// Puts the instances that may be led to into the table.
fn publish(scene: &Scene, fleet: &Fleet) {
    let addresses: Vec<SocketAddr> = fleet.listed();
    scene.publish(&[deployment(1, Protocol::Http1, &addresses), route(HOST, 1)]);
}

/// Every answer that is not 2xx must be one that nobody could have given better: a request that may not be made twice,
/// while an instance was ill.
fn explained(phase: &str, load: &Load) -> u64 {
    let (count, failures) = load.take();
    let unexplained: Vec<String> = failures
        .iter()
        .filter(|failure| {
            failure.asked == Asked::Get || !failure.states.contains("ill") || failure.status == 0
        })
        .map(ToString::to_string)
        .collect();
    assert!(
        unexplained.is_empty(),
        "{phase}: {} of {count} requests failed for no good reason:\n{}",
        unexplained.len(),
        unexplained.join("\n")
    );
    println!("{phase}: {count} requests, {} explained", failures.len());
    count
}

/// The one that falls ill.
const ILL: usize = 1;

/// Waits until the one that was ill is asked again: whoever is well again is, after a while.
async fn is_asked(load: &Load, fleet: &Fleet) {
    let asked = fleet.asked(ILL);
    while fleet.asked(ILL) < asked + 10 {
        load.more(100).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_that_a_healthy_instance_could_have_served() {
    let tasks = Tasks::new();
    let fleet = Arc::new(Fleet::start(4).await);
    let scene = Scene::new(config(), Protocol::Http1, &fleet.listed()).await;
    let clock = scene.watch.clock().clone();
    let load = Load::start(&tasks, scene.address, CLIENTS, &[HOST], &fleet);
    let mut total = 0;
    load.more(EACH).await;
    total += explained("all well", &load);

    for nth in 0..4 {
        // Out of the table first, then to its end, then a new one: as a rollout does it.
        fleet.list(nth, false);
        publish(&scene, &fleet);
        fleet.drain(nth, &clock).await;
        load.more(EACH / 4).await;
        fleet.restart(nth).await;
        fleet.list(nth, true);
        publish(&scene, &fleet);
        load.more(EACH / 4).await;
    }
    total += explained("every instance restarted", &load);

    for behaviour in Behaviour::ILL {
        is_asked(&load, &fleet).await;
        total += explained("well", &load);
        let asked = fleet.asked(ILL);
        fleet.behave(ILL, behaviour).await;
        load.more(EACH).await;
        let is_noticed = behaviour == Behaviour::Dead || fleet.asked(ILL) > asked;
        assert!(is_noticed, "{behaviour:?}: nobody asked the one that is ill");
        fleet.behave(ILL, Behaviour::Well).await;
        load.more(EACH / 8).await;
        total += explained(behaviour.name(), &load);
        fleet.recovered(ILL);
    }
    is_asked(&load, &fleet).await;
    total += explained("well again", &load);

    for nth in 0..1000_u32 {
        let addresses = fleet.listed();
        let some = &addresses[usize::try_from(nth % 3).unwrap()..];
        let number = u128::from(nth % 2 + 1);
        scene.publish(&[
            deployment(1, Protocol::Http1, some),
            deployment(2, Protocol::Http1, &addresses),
            route(HOST, number),
        ]);
        load.more(EACH / 500).await;
    }
    total += explained("a thousand changes of routes", &load);
    load.more(50_000_u64.saturating_sub(total)).await;
    total += explained("and on", &load);
    assert!(total >= 50_000, "only {total} requests");
    tasks.stop(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_never_sees_half_a_switch() {
    let tasks = Tasks::new();
    let generations = Generations::start(&tasks).await;
    let scene = Scene::new(ProxyConfig::default(), Protocol::Http1, &[generations.address(0)]).await;
    let publish = |generation: u32| {
        let number = u128::from(generation) + 1;
        scene.publish(&[
            deployment(number, Protocol::Http1, &[generations.address(generation)]),
            route(HOST, number),
            route(OTHER_HOST, number),
        ]);
    };
    publish(0);
    let readers: Vec<client::Reader> =
        (0..8).map(|_| client::Reader::start(&tasks, scene.address, [HOST, OTHER_HOST])).collect();
    for generation in 1..=1000 {
        publish(generation);
        // Each switch is read by somebody before the next.
        client::Reader::someone_reads(&readers, generation).await;
    }
    let mut read = 0;
    for reader in readers {
        let (count, wrongs) = reader.end().await;
        assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
        read += count;
    }
    println!("1000 switches, {read} answers");
    tasks.stop(Duration::from_secs(5)).await;
}
