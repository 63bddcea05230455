//! Tables made of what a stream tells, and what requests are sent to by them.

use std::net::Ipv4Addr;

use model::{
    deployment::Status as DeploymentStatus,
    id::{EnvironmentId, HistoryId},
    name::Placement,
    route::{Target, Targets},
    watch::{Bookmark, Change, Event, Position, Version},
};

use super::{disk::DiskError, *};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3));

fn id(number: u128) -> DeploymentId {
    DeploymentId::sample(number)
}

fn upstream(name: &str, status: Status) -> Upstream {
    let host = name.rsplit('-').next().unwrap();
    let address = Some(format!("10.0.0.{host}:8080").parse().unwrap());
    Upstream { name: name.parse().unwrap(), address, zone: Some("a".parse().unwrap()), status }
}

fn deployment(number: u128, running: &[&str]) -> Routed {
    Routed::Deployment {
        id: id(number),
        status: DeploymentStatus::Ready,
        protocol: Protocol::Http1,
        upstreams: running.iter().map(|name| upstream(name, Status::Running)).collect(),
    }
}

fn route(hostname: &str, targets: Targets) -> Route {
    Route::sample().at(hostname).to(targets)
}

fn position(version: u64) -> Position {
    let history = HistoryId::sample(1);
    Position { history, version: Version::new(version), floor: Version::ZERO, since: Version::ZERO }
}

/// A reader that was told all of this at once.
fn told(all: &[Routed]) -> Reader<Held<Routed>> {
    let mut reader = Reader::default();
    reader.receive(Event::Init).unwrap();
    for (version, routed) in (1..).zip(all) {
        let (key, state) = (wire::route::key(routed), Ok(routed.clone()));
        let change = Change { key, version: Version::new(version), state, end: false };
        let event = if routed.is_gone() { Event::Delete(change) } else { Event::Apply(change) };
        reader.receive(event).unwrap();
    }
    let done = Bookmark { position: position(100), census: None };
    reader.receive(Event::InitDone(done)).unwrap();
    reader
}

fn table_after(before: &Table, all: &[Routed], now: u64) -> Table {
    let (zone, tallies) = ("a".parse().unwrap(), Tallies::default());
    let now = Moment::from_micros(now);
    Table::of(&told(all), before, Surroundings { zone: Some(&zone), tallies: &tallies, now })
}

fn table(all: &[Routed]) -> Table {
    table_after(&Table::default(), all, 0)
}

fn goes(table: &Table, host: &str) -> Result<DeploymentId, Unroutable> {
    table.choose(Wanted::Host(host), CLIENT, || 0).map(|chosen| chosen.deployment.id)
}

#[test]
fn an_exact_name_comes_before_a_wildcard_and_others_are_not_there() {
    let table = table(&[
        deployment(1, &["pod-1"]),
        deployment(2, &["pod-2"]),
        Routed::Route(route("*.example.com", Targets::one(id(1)))),
        Routed::Route(route("a.example.com", Targets::one(id(2)))),
    ]);
    assert_eq!(goes(&table, "a.example.com"), Ok(id(2)));
    assert_eq!(goes(&table, "b.example.com"), Ok(id(1)));
    assert_eq!(goes(&table, "example.com"), Err(Unroutable::NotFound));
    assert_eq!(table.routes(), 2);
}

#[test]
fn the_previous_deployment_serves_where_nothing_of_the_target_runs() {
    let switched = route("a.example.com", Targets::one(id(1))).switched_to(id(2));
    let both = |new: &[&str], old: &[&str]| {
        goes(
            &table(&[deployment(1, old), deployment(2, new), Routed::Route(switched.clone())]),
            "a.example.com",
        )
    };
    assert_eq!(both(&["pod-2"], &["pod-1"]), Ok(id(2)));
    assert_eq!(both(&[], &["pod-1"]), Ok(id(1)));
    assert_eq!(both(&[], &[]), Err(Unroutable::NothingRuns));
    let gone =
        table(&[Routed::DeploymentGone(id(2)), deployment(1, &["pod-1"]), Routed::Route(switched.clone())]);
    assert_eq!(goes(&gone, "a.example.com"), Ok(id(1)));
}

#[test]
fn a_deployment_that_is_not_of_this_environment_is_not_there() {
    let table = table(&[deployment(1, &["pod-1"]), deployment(2, &[])]);
    let named = |number| {
        table.choose(Wanted::Deployment(id(number)), CLIENT, || 0).map(|chosen| chosen.deployment.id)
    };
    assert_eq!(named(1), Ok(id(1)));
    assert_eq!(named(2), Err(Unroutable::NothingRuns));
    assert_eq!(named(3), Err(Unroutable::NotFound));
}

#[test]
fn only_running_instances_with_an_address_are_sent_requests() {
    let mut pending = upstream("pod-2", Status::Pending);
    let failed = upstream("pod-3", Status::Failed);
    let mut nowhere = upstream("pod-4", Status::Running);
    nowhere.address = None;
    pending.zone = None;
    let Routed::Deployment { id, status, protocol, mut upstreams } = deployment(1, &["pod-1"]) else {
        unreachable!("a deployment was made")
    };
    upstreams.extend([pending, failed, nowhere]);
    let table = table(&[Routed::Deployment { id, status, protocol, upstreams }]);
    assert_eq!(table.addresses().collect::<Vec<_>>(), ["10.0.0.1:8080".parse().unwrap()]);
}

#[test]
fn weights_are_kept_to_and_a_client_stays_where_it_was_sent() {
    let weights = [(1, 30), (2, 70)].map(|(number, weight)| Target { deployment: id(number), weight });
    let targets = Targets::new(weights.into()).unwrap();
    let sticky = Route { affinity: Affinity::Client, ..route("b.example.com", targets.clone()) };
    let table = table(&[
        deployment(1, &["pod-1"]),
        deployment(2, &["pod-2"]),
        Routed::Route(route("a.example.com", targets)),
        Routed::Route(sticky),
    ]);
    let random = runtime::random::Random::seeded(3);
    let share = |host: &str, client: &dyn Fn(u32) -> IpAddr| {
        let first = (0..10_000).filter(|nth| {
            let chosen = table.choose(Wanted::Host(host), client(*nth), || random.u64()).unwrap();
            chosen.deployment.id == id(1)
        });
        first.count()
    };
    let one = |_| CLIENT;
    let many = |nth| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + nth));
    assert!((2800..3200).contains(&share("a.example.com", &one)));
    assert!((2800..3200).contains(&share("b.example.com", &many)));
    assert!([0, 10_000].contains(&share("b.example.com", &one)), "one client, one deployment");
}

#[test]
fn what_was_learnt_of_an_instance_is_carried_to_the_next_table() {
    let first = table(&[deployment(1, &["pod-1", "pod-2"])]);
    let second = table_after(&first, &[deployment(1, &["pod-2", "pod-3"]), deployment(2, &["pod-4"])], 5);
    let third = table_after(&second, &[deployment(1, &["pod-3", "pod-2"]), deployment(2, &["pod-4"])], 9);
    let find = |table: &Table, name: &str| {
        let mut all = table.deployments().flat_map(|deployment| deployment.instances.iter().cloned());
        all.find(|instance| instance.name.as_str() == name).unwrap()
    };
    assert!(Arc::ptr_eq(&find(&first, "pod-2"), &find(&second, "pod-2")));
    assert!(Arc::ptr_eq(&find(&second, "pod-3"), &find(&third, "pod-3")));
    let of = |table: &Table| Arc::clone(table.deployments().next().unwrap());
    assert!(Arc::ptr_eq(of(&first).instances.load(), of(&second).instances.load()));
    assert!(Arc::ptr_eq(&of(&second), &of(&third)), "nothing changed but the order");
}

#[test]
fn a_table_comes_back_from_disk_as_it_was_kept() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk::Disk::new(directory.path(), EnvironmentId::sample(1), Placement::sample());
    assert!(disk.load().unwrap().is_none(), "nothing was ever kept");
    let all = [
        deployment(1, &["pod-1", "pod-2"]),
        Routed::Route(route("a.example.com", Targets::one(id(1)))),
        Routed::RouteGone("b.example.com".parse().unwrap()),
    ];
    let reader = told(&all);
    block_on(disk.keep(&reader)).unwrap();
    let kept = disk.load().unwrap().unwrap();
    assert_eq!((kept.cursor(), kept.census()), (reader.cursor(), reader.census()));
    let alive = Bookmark { position: position(101), census: Some(reader.census()) };
    let mut kept = kept;
    assert_eq!(
        kept.receive(Event::Alive(alive)),
        Ok(model::watch::Received::Held),
        "it resumes without INIT"
    );
    let (zone, tallies) = ("a".parse().unwrap(), Tallies::default());
    let around = Surroundings { zone: Some(&zone), tallies: &tallies, now: Moment::default() };
    assert_eq!(goes(&Table::of(&kept, &Table::default(), around), "a.example.com"), Ok(id(1)));
    assert!(!directory.path().join("routes.new").exists(), "nothing is left beside it");
}

#[test]
fn what_is_damaged_or_of_another_place_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk::Disk::new(directory.path(), EnvironmentId::sample(1), Placement::sample());
    let reader =
        told(&[deployment(1, &["pod-1"]), Routed::Route(route("a.example.com", Targets::one(id(1))))]);
    block_on(disk.keep(&reader)).unwrap();
    let whole = std::fs::read(disk.path()).unwrap();
    let other = disk::Disk::new(directory.path(), EnvironmentId::sample(2), Placement::sample());
    assert!(matches!(other.load(), Err(DiskError::Elsewhere { .. })));
    for index in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[index] ^= 0x10;
        std::fs::write(disk.path(), &bytes).unwrap();
        let refused = disk.load().unwrap_err();
        let is_magic = index < 15;
        assert_eq!(matches!(refused, DiskError::Unknown { .. }), is_magic, "byte {index}: {refused}");
        std::fs::write(disk.path(), &whole[..index]).unwrap();
        assert!(disk.load().is_err(), "cut at {index}");
    }
}

#[test]
fn a_reader_that_knows_nothing_keeps_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk::Disk::new(directory.path(), EnvironmentId::sample(1), Placement::sample());
    block_on(disk.keep(&Reader::default())).unwrap();
    assert!(!disk.path().exists());
}

#[test]
fn half_a_picture_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk::Disk::new(directory.path(), EnvironmentId::sample(1), Placement::sample());
    let mut reader = told(&[deployment(1, &["a-1"])]);
    block_on(disk.keep(&reader)).unwrap();
    let (next, last) = (deployment(2, &["b-1"]), deployment(3, &["c-1"]));
    let change = |routed: &Routed, version, end| {
        let (key, state) = (wire::route::key(routed), Ok(routed.clone()));
        Event::Apply(Change { key, version: Version::new(version), state, end })
    };
    reader.receive(change(&next, 101, false)).unwrap();
    block_on(disk.keep(&reader)).unwrap();
    let kept = || disk.load().unwrap().unwrap();
    assert_eq!((kept().cursor().version, kept().iter().count()), (Version::new(100), 1));
    reader.receive(change(&last, 102, true)).unwrap();
    block_on(disk.keep(&reader)).unwrap();
    assert_eq!((kept().cursor().version, kept().iter().count()), (Version::new(102), 3));
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}
