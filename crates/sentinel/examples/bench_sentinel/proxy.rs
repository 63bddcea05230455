//! What a request costs: processor time of the proxy alone, by turns with the others.

use serde_json::Value;

use crate::{
    figures::{held, median, spread, told},
    has,
    load::{Seen, round},
    number, option,
    proxies::{LARGE, Proxy, SMALL, go_proxy, haproxy, instance, nginx_proxy, ours},
};

/// What is asked, and by which protocol.
struct Scene {
    name: &'static str,
    protocol: &'static str,
    path: &'static str,
    size: usize,
    /// Whether the goals are about it.
    is_held: bool,
}

const SCENES: [Scene; 4] = [
    Scene { name: "h1, small", protocol: "h1", path: "/small", size: SMALL, is_held: true },
    Scene { name: "h1, large", protocol: "h1", path: "/large", size: LARGE, is_held: false },
    Scene { name: "h2c, small", protocol: "h2c", path: "/small", size: SMALL, is_held: false },
    Scene { name: "h2c, large", protocol: "h2c", path: "/large", size: LARGE, is_held: false },
];

const NGINX_MAX: f64 = 1.1;
const GO_MIN: f64 = 3.0;

/// Nothing is asserted of figures that lie further apart, in percent.
const SPREAD_MAX: f64 = 15.0;

/// What was seen of one proxy in one scene, round by round.
#[derive(Default)]
struct Rounds {
    cpu_us: Vec<f64>,
    seen: Vec<Seen>,
}

pub async fn measure() -> Vec<Value> {
    let rounds = number("--rounds", 20);
    let seconds = option("--seconds").unwrap_or_else(|| "2".to_owned());
    let home = tempfile::tempdir().expect("a directory");
    let (_instance, address) = instance(home.path()).await;
    let mut proxies = vec![
        ours(home.path(), address).await,
        nginx_proxy(home.path(), address).await,
        go_proxy(address).await,
    ];
    if has("--all") {
        proxies.push(haproxy(home.path(), address).await);
        eprintln!("bench: Envoy is in no package of Debian and is not compared");
    }
    let mut rows = Vec::new();
    for scene in &SCENES {
        let mut all: Vec<Rounds> = proxies.iter().map(|_| Rounds::default()).collect();
        for nth in 0..=rounds {
            for (proxy, seen) in proxies.iter().zip(&mut all) {
                let (cpu_us, told) = one(proxy, scene, &seconds).await;
                // The first warms up.
                if nth > 0 {
                    seen.cpu_us.push(cpu_us);
                    seen.seen.push(told);
                }
            }
        }
        rows.extend(proxies.iter().zip(&all).flat_map(|(proxy, seen)| of_one(scene, proxy, seen)));
        rows.push(against(scene, "cpu_vs_nginx", &all[0], &all[1], |ratio| ratio <= NGINX_MAX, "≤ 1.1"));
        rows.push(against(scene, "cpu_vs_go", &all[2], &all[0], |ratio| ratio >= GO_MIN, "≥ 3"));
    }
    rows
}

async fn one(proxy: &Proxy, scene: &Scene, seconds: &str) -> (f64, Seen) {
    let address = if scene.protocol == "h2c" { proxy.http2 } else { proxy.http1 };
    let before = proxy.process.cpu_us();
    let seen = round(address, scene.protocol, scene.path, scene.size, seconds).await;
    ((proxy.process.cpu_us() - before) / seen.requests, seen)
}

fn of_one(scene: &Scene, proxy: &Proxy, rounds: &Rounds) -> Vec<Value> {
    let size = format!("{}, {}", scene.name, proxy.name);
    let of = |figure: fn(&Seen) -> f64| median(&rounds.seen.iter().map(figure).collect::<Vec<_>>());
    vec![
        told("cpu_us_per_request", &size, median(&rounds.cpu_us), "µs"),
        told("cpu_spread", &size, spread(&rounds.cpu_us), "%"),
        told("requests_per_second", &size, of(|seen| seen.requests / seen.seconds), "1/s"),
        told("p50_ms", &size, of(|seen| seen.p50_ms), "ms"),
        told("p99_ms", &size, of(|seen| seen.p99_ms), "ms"),
    ]
}

/// The median over rounds of one's cost by the other's.
fn against(
    scene: &Scene,
    measure: &str,
    one: &Rounds,
    other: &Rounds,
    is_met: impl Fn(f64) -> bool,
    goal: &str,
) -> Value {
    let ratios: Vec<f64> = one.cpu_us.iter().zip(&other.cpu_us).map(|(one, other)| one / other).collect();
    let (ratio, apart) = (median(&ratios), spread(&ratios));
    if !scene.is_held {
        return told(measure, scene.name, ratio, "×");
    }
    let goal = format!("{goal} (spread {apart:.0} %)");
    held(measure, scene.name, ratio, "×", &goal, (apart <= SPREAD_MAX).then(|| is_met(ratio)))
}
