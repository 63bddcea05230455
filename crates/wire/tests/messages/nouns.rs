//! Nouns of every kind, made at random: all that a message can be asked to carry.

use std::{collections::BTreeMap, str::FromStr, sync::Arc, time::Duration};

use model::{
    cluster::{ApplyError, ApplyReason, Counts, Epoch, HeldBack, ListHash, Sequence},
    deployment::{Command, Deployment, Git, Healthcheck, Protocol, Shutdown, Status},
    id::{ChangeId, DeploymentId, EnvironmentId, HistoryId, NetworkPolicyId, SentinelId},
    instance::{self, Instance, Reason},
    kind::Kind,
    name::{Address, Hostname, LabelValue, Line, Message, Placement, PodName, Port, Signal},
    network_policy::NetworkPolicy,
    route::{Affinity, Follows, Route, Target, Targets},
    secret::Sealed,
    sentinel::{Generation, Health, Sentinel},
    size::{Autoscaling, CpuMillis, MemoryMib, Replicas, Resources, Scaling, Seconds, StorageMib, Threshold},
    time::Millis,
    topology::Workload,
    traffic::{BUCKETS, Blame, Histogram, Sample, StatusClass, Sums},
    watch::{Census, Cursor, Key, Position, Version},
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use runtime::random::Random;
use wire::{
    auth::{CredentialKeys, Credentials},
    heartbeat::{Answer, Breaker, Capacity, Heartbeat, KindStatus},
    report::{ApplyReport, DeploymentReport, Heading, Inventory, SentinelReport},
    request::{Caller, Get, Sync, Watch, WatchRoutes},
    route::{Routed, Upstream},
    traffic::Traffic,
    watch::Stamp,
};

/// A noun whose text is any that the pattern makes.
fn text<T: FromStr<Err: std::fmt::Debug> + std::fmt::Debug>(
    pattern: &'static str,
) -> impl Strategy<Value = T> {
    pattern.prop_map(|text| text.parse().expect("the pattern makes such texts only"))
}

fn kubernetes_name<T: FromStr<Err: std::fmt::Debug> + std::fmt::Debug>() -> impl Strategy<Value = T> {
    text("[a-z]([a-z0-9-]{0,20}[a-z0-9])?")
}

fn line() -> impl Strategy<Value = Line> {
    text("[!-~äß]([ -~äß]{0,30}[!-~äß])?")
}

fn message() -> impl Strategy<Value = Message> {
    "\\PC{1,40}|[a-z ]{1000,1100}".prop_map(|text| Message::cut(&text))
}

fn millis() -> impl Strategy<Value = Millis> {
    (0..=i64::MAX).prop_map(Millis)
}

/// A number that can be stored.
fn number() -> impl Strategy<Value = u64> {
    0..=Version::MAX.get()
}

pub fn version() -> impl Strategy<Value = Version> {
    (1..=Version::MAX.get()).prop_map(Version::new)
}

fn history() -> impl Strategy<Value = HistoryId> {
    any::<u128>().prop_map(HistoryId::from_u128)
}

fn deployment_id() -> impl Strategy<Value = DeploymentId> {
    any::<u128>().prop_map(DeploymentId::from_u128)
}

fn hostname() -> impl Strategy<Value = Hostname> {
    text("(\\*\\.)?[a-z0-9]{1,12}(\\.[a-z]{2,8}){1,2}")
}

fn replicas() -> impl Strategy<Value = Replicas> {
    (0_i64..=1000).prop_map(|number| Replicas::new(number).unwrap())
}

fn cpu() -> impl Strategy<Value = CpuMillis> {
    (10_i64..=64_000).prop_map(|number| CpuMillis::new(number).unwrap())
}

fn memory() -> impl Strategy<Value = MemoryMib> {
    (16_i64..=524_288).prop_map(|number| MemoryMib::new(number).unwrap())
}

fn seconds(range: std::ops::RangeInclusive<i64>) -> impl Strategy<Value = Seconds> {
    range.prop_map(|number| Seconds::new(number).unwrap())
}

fn census() -> impl Strategy<Value = Census> {
    any::<(u64, u64)>().prop_map(|(count, digest)| Census { count, digest })
}

/// When a state was; a tombstone or not.
pub fn stamp(gone: bool) -> impl Strategy<Value = Stamp> {
    let change = option::of(any::<u128>().prop_map(ChangeId::from_u128));
    (version(), change).prop_map(move |(version, change)| Stamp { version, gone, change })
}

pub fn position() -> impl Strategy<Value = Position> {
    (history(), number(), number(), number()).prop_map(|(history, version, floor, since)| Position {
        history,
        version: Version::new(version),
        floor: Version::new(floor),
        since: Version::new(since),
    })
}

/// A bookmark, as the message it is.
pub fn bookmark() -> impl Strategy<Value = wire::proto::Bookmark> {
    let any = prop_oneof![
        Just(wire::watch::init()),
        position().prop_map(|position| wire::watch::init_done(&position)),
        (position(), option::of(census()))
            .prop_map(|(position, census)| wire::watch::alive(&position, census)),
    ];
    (any, option::of(select(Kind::ALL))).prop_map(|(mark, kind)| match kind {
        Some(kind) => wire::watch::about(mark, kind),
        None => mark,
    })
}

// ── desired state ───────────────────────────────────────────────────────────────────────────────────────────

fn scaling() -> impl Strategy<Value = Scaling> {
    let threshold = || (1_i64..=100).prop_map(|percent| Threshold::new(percent).unwrap());
    let bounds = (1_i64..=1000, 0_i64..=999, option::of(threshold()), option::of(threshold()));
    let auto = bounds.prop_map(|(min, more, cpu, memory)| {
        let (min, max) = (Replicas::new(min), Replicas::new((min + more).min(1000)));
        Scaling::Auto(Autoscaling::new(min.unwrap(), max.unwrap(), cpu, memory).unwrap())
    });
    prop_oneof![replicas().prop_map(Scaling::Fixed), Just(Scaling::Fixed(Replicas::MIN)), auto]
}

fn resources() -> impl Strategy<Value = Resources> {
    let storage = (1_i64..=1_048_576).prop_map(|number| StorageMib::new(number).unwrap());
    (cpu(), memory(), option::of(storage)).prop_map(|(cpu, memory, storage)| Resources {
        cpu,
        memory,
        storage,
    })
}

fn health() -> impl Strategy<Value = Healthcheck> {
    let path = text("/[a-zA-Z0-9?&=/%._-]{0,40}");
    let rhythm = (seconds(1..=86_400), seconds(1..=86_400), 1_u32..=1000);
    let method = select(model::deployment::HealthMethod::ALL);
    (method, path, rhythm, seconds(0..=86_400)).prop_map(|(method, path, rhythm, delay)| {
        let (interval, timeout, failures) = rhythm;
        let mut check = Healthcheck::get(path).with_rhythm(interval, timeout, failures).unwrap();
        check.method = method;
        check.initial_delay = delay;
        check
    })
}

fn git() -> impl Strategy<Value = Git> {
    let sha = option::of(text("[0-9a-f]{40}|[0-9a-f]{64}"));
    let branch = option::of(text("[a-z][a-z/-]{0,20}[a-z]"));
    let parts =
        (sha, branch, option::of(message()), option::of(line()), option::of(millis()), option::of(line()));
    parts.prop_map(|(sha, branch, message, author, committed_at, repository)| Git {
        sha,
        branch,
        message,
        author,
        committed_at,
        repository,
    })
}

fn command() -> impl Strategy<Value = Command> {
    vec("[!-~äß]{1,10}", 0..4).prop_map(|words| Command::new(words).unwrap())
}

fn deployment() -> impl Strategy<Value = Deployment> {
    let names = (kubernetes_name(), kubernetes_name(), text("[a-z]{1,9}(:[a-z0-9]{1,9})?"), git());
    let runs = (
        resources(),
        1_i64..=65_535,
        select(Protocol::ALL),
        command(),
        (select(Signal::ALL), seconds(0..=86_400)),
        option::of(health()),
        option::of(vec(any::<u8>(), 1..40)),
    );
    (any::<[u128; 5]>(), names, runs, millis()).prop_map(|(ids, names, runs, created_at)| {
        let (environment_slug, k8s_name, image, git) = names;
        let (resources, port, protocol, command, (signal, grace), health, variables) = runs;
        Deployment {
            id: DeploymentId::from_u128(ids[0]),
            workspace: model::id::WorkspaceId::from_u128(ids[1]),
            project: model::id::ProjectId::from_u128(ids[2]),
            app: model::id::AppId::from_u128(ids[3]),
            environment: EnvironmentId::from_u128(ids[4]),
            environment_slug,
            k8s_name,
            image,
            git,
            resources,
            port: Port::new(port).unwrap(),
            protocol,
            command,
            shutdown: Shutdown { signal, grace },
            health,
            variables: variables.map(Sealed::new),
            created_at,
        }
    })
}

/// A workload of the sample place.
pub fn workload() -> impl Strategy<Value = Workload> {
    (deployment(), kubernetes_name(), scaling()).prop_map(|(deployment, namespace, scaling)| Workload {
        deployment: Arc::new(deployment),
        placement: Placement::sample(),
        namespace,
        scaling,
    })
}

/// A sentinel of the sample place with its credentials. There are few ids, so that two samples share one.
pub fn sentinel() -> impl Strategy<Value = (Sentinel, Credentials)> {
    let settings = prop_oneof![Just(String::new()), "\\PC{1,40}"];
    let names = (kubernetes_name::<model::name::KubernetesName>(), text("[a-z]{1,9}:[0-9]{1,4}"), settings);
    let sizes = (replicas(), cpu(), memory(), any::<u32>(), 0_u32..u32::MAX);
    (1_u128..=2, any::<[u128; 4]>(), names, sizes).prop_map(|(id, ids, names, sizes)| {
        let (k8s_name, image, settings) = names;
        let (replicas, cpu, memory, credential, gossip) = sizes;
        let mut sentinel = Sentinel::sample();
        sentinel.id = SentinelId::sample(id);
        sentinel.workspace = model::id::WorkspaceId::from_u128(ids[0]);
        sentinel.project = model::id::ProjectId::from_u128(ids[1]);
        sentinel.app = model::id::AppId::from_u128(ids[2]);
        sentinel.environment = EnvironmentId::from_u128(ids[3]);
        sentinel.address = Sentinel::address_of(&k8s_name);
        sentinel.k8s_name = k8s_name;
        sentinel.desired.image = image;
        sentinel.desired.replicas = replicas;
        sentinel.desired.cpu = cpu;
        sentinel.desired.memory = memory;
        sentinel.desired.credential = Generation(credential);
        sentinel.desired.gossip = Generation(gossip);
        sentinel.desired.settings = settings.into();
        let credentials = credentials(&sentinel);
        (sentinel, credentials)
    })
}

/// What the sentinel is given, with a key that only these tests have.
pub fn credentials(sentinel: &Sentinel) -> Credentials {
    let desired = &sentinel.desired;
    keys()
        .credentials(sentinel.id, sentinel.environment, &desired.key, desired.credential, desired.gossip)
        .expect("its key is loaded")
}

fn keys() -> CredentialKeys {
    let secret = CredentialKeys::generate(&Random::seeded(7));
    CredentialKeys::parse(vec![(Sentinel::sample().desired.key, secret)]).expect("one key")
}

/// A policy of the sample place.
pub fn network_policy() -> impl Strategy<Value = NetworkPolicy> {
    let names = (kubernetes_name(), kubernetes_name(), text("\\{\"kind\":\"[a-z ]{1,20}\"\\}"));
    (any::<u128>(), deployment_id(), names).prop_map(|(id, deployment, (namespace, name, policy))| {
        let id = NetworkPolicyId::from_u128(id);
        NetworkPolicy { id, placement: Placement::sample(), namespace, name, deployment, policy }
    })
}

// ── requests and reports ────────────────────────────────────────────────────────────────────────────────────

pub fn caller() -> impl Strategy<Value = Caller> {
    let placement = (text("[a-z]{1,5}/[a-z]{2}-[a-z]{3,6}-[0-9]"), select(vec!["default", "a", "b-2"]));
    (placement, option::of(line())).prop_map(|((region, shard), instance)| {
        let region: model::name::RegionKey = region;
        Caller { placement: region.shard(shard.parse().unwrap()), instance }
    })
}

pub fn cursor() -> impl Strategy<Value = Cursor> {
    (option::of(history()), number())
        .prop_map(|(history, version)| Cursor { history, version: Version::new(version) })
}

pub fn watch() -> impl Strategy<Value = Watch> {
    (caller(), cursor()).prop_map(|(caller, cursor)| Watch { caller, cursor })
}

pub fn watch_routes() -> impl Strategy<Value = WatchRoutes> {
    (caller(), any::<u128>(), cursor()).prop_map(|(caller, environment, cursor)| WatchRoutes {
        caller,
        environment: EnvironmentId::from_u128(environment),
        cursor,
    })
}

pub fn get<I: std::fmt::Debug>(id: fn(u128) -> I) -> impl Strategy<Value = Get<I>> {
    (caller(), any::<u128>()).prop_map(move |(caller, value)| Get { caller, id: id(value) })
}

fn kinds() -> impl Strategy<Value = Vec<Kind>> {
    proptest::sample::subsequence(Kind::ALL, 0..=Kind::ALL.len()).prop_shuffle()
}

pub fn sync() -> impl Strategy<Value = Sync> {
    let holds =
        (kinds(), vec(census(), 3)).prop_map(|(kinds, censuses)| kinds.into_iter().zip(censuses).collect());
    (caller(), option::of(history()), holds).prop_map(|(caller, history, holds)| Sync {
        caller,
        history,
        holds,
    })
}

fn heading() -> impl Strategy<Value = Heading> {
    let observed = option::of((option::of(history()), version()));
    let epoch = option::of((1..=Version::MAX.get()).prop_map(Epoch));
    (caller(), epoch, number(), observed).prop_map(|(caller, epoch, sequence, observed)| {
        let observed = observed.map(|(history, version)| Cursor { history, version });
        Heading { caller, epoch, sequence: Sequence(sequence), observed }
    })
}

fn address() -> impl Strategy<Value = Address> {
    text("10\\.[0-9]\\.0\\.[0-9]:[1-9][0-9]{1,3}|\\[fd00::[1-9]\\]:80|[a-z]{1,9}\\.svc:8040")
}

fn zone() -> impl Strategy<Value = LabelValue> {
    text("[a-z]{2}-[a-z]{4}-[0-9][a-c]")
}

pub fn instance() -> impl Strategy<Value = Instance> {
    let names = (text("[a-z0-9]{1,12}(-[a-z0-9]{1,5}){0,2}"), option::of(line()), option::of(address()));
    let sizes = (option::of(zone()), option::of(cpu()), option::of(memory()));
    let reason = "[A-Z][A-Za-z]{0,20}|OOMKilled".prop_map(|text| Reason::read(&text).unwrap());
    let state = (
        select(instance::Status::ALL),
        any::<bool>(),
        option::of(reason),
        option::of(message()),
        any::<u32>(),
        any::<Option<i32>>(),
    );
    (names, sizes, state).prop_map(|((k8s_name, uid, address), (zone, cpu, memory), state)| {
        let (status, ready, reason, message, restarts, exit_code) = state;
        Instance {
            k8s_name,
            uid,
            address,
            zone,
            cpu,
            memory,
            status,
            ready,
            reason,
            message,
            restarts,
            exit_code,
        }
    })
}

/// Instances of different names.
fn instances() -> impl Strategy<Value = Vec<Instance>> {
    vec(instance(), 0..4).prop_map(|all| {
        let by_name: BTreeMap<PodName, Instance> =
            all.into_iter().map(|instance| (instance.k8s_name.clone(), instance)).collect();
        by_name.into_values().collect()
    })
}

pub fn deployment_report() -> impl Strategy<Value = DeploymentReport> {
    (heading(), kubernetes_name(), option::of(instances()))
        .prop_map(|(heading, name, instances)| DeploymentReport { heading, name, instances })
}

pub fn sentinel_report() -> impl Strategy<Value = SentinelReport> {
    let id = option::of(any::<u128>().prop_map(SentinelId::from_u128));
    let image = option::of(text("[a-z]{1,9}(:[a-z0-9]{1,9})?"));
    let counts = (replicas(), replicas(), select(Health::ALL));
    (heading(), kubernetes_name(), id, counts, image).prop_map(
        |(heading, name, id, counts, running_image)| {
            let (available, ready, health) = counts;
            SentinelReport { heading, name, id, available, ready, health, running_image }
        },
    )
}

pub fn inventory() -> impl Strategy<Value = Inventory> {
    let names = || proptest::collection::btree_set(kubernetes_name(), 0..5);
    (heading(), names(), names()).prop_map(|(heading, deployments, sentinels)| Inventory {
        heading,
        deployments,
        sentinels,
    })
}

pub fn apply_report() -> impl Strategy<Value = ApplyReport> {
    let error = (select(ApplyReason::ALL), message(), millis())
        .prop_map(|(reason, message, since)| ApplyError { reason, message, since });
    let subject = (select(Kind::ALL), any::<u128>());
    (heading(), subject, (option::of(history()), version()), option::of(error)).prop_map(
        |(heading, (kind, id), (history, version), error)| {
            let id = match kind {
                Kind::Deployment => DeploymentId::from_u128(id).to_string(),
                Kind::Sentinel => SentinelId::from_u128(id).to_string(),
                Kind::NetworkPolicy => NetworkPolicyId::from_u128(id).to_string(),
            };
            let heading = Heading { observed: Some(Cursor { history, version }), ..heading };
            ApplyReport { heading, kind, id: Key::new(id), version, error }
        },
    )
}

// ── heartbeats ──────────────────────────────────────────────────────────────────────────────────────────────

fn list_hash() -> impl Strategy<Value = ListHash> {
    any::<[u8; 32]>().prop_map(ListHash)
}

fn kind_status() -> impl Strategy<Value = KindStatus> {
    let held_back = option::of((list_hash(), number()));
    (vec(number(), 5), select(&Breaker::ALL), held_back).prop_map(|(numbers, breaker, held_back)| {
        // The kind is put in by whoever makes a list of different ones.
        let kind = Kind::Deployment;
        let [held, failing, orphans, drift_corrected, cursor] = numbers.try_into().unwrap();
        let held_back = held_back.map(|(hash, count)| HeldBack { kind, hash, count, confirmed: None });
        let counts = Counts { kind, held, failing, orphans, drift_corrected };
        KindStatus { counts, cursor: Version::new(cursor), breaker, held_back }
    })
}

fn kind_statuses() -> impl Strategy<Value = Vec<KindStatus>> {
    (kinds(), vec(kind_status(), 3)).prop_map(|(kinds, statuses)| {
        let of_kind = |(kind, mut status): (Kind, KindStatus)| {
            status.counts.kind = kind;
            status.held_back = status.held_back.map(|held| HeldBack { kind, ..held });
            status
        };
        kinds.into_iter().zip(statuses).map(of_kind).collect()
    })
}

pub fn heartbeat() -> impl Strategy<Value = Heartbeat> {
    let capacity = (0..=i64::MAX.cast_unsigned(), 0..=i64::MAX.cast_unsigned(), any::<u32>())
        .prop_map(|(cpu_millicores, memory_mib, pods)| Capacity { cpu_millicores, memory_mib, pods });
    let epoch = option::of((1..=Version::MAX.get()).prop_map(Epoch));
    let told = (option::of(line()), option::of(line()), option::of(history()));
    let counted = (kind_statuses(), option::of(capacity), option::of(census()));
    (caller(), epoch, told, counted).prop_map(|(caller, epoch, told, counted)| {
        let (begin, agent_version, history) = told;
        let (kinds, capacity, instances) = counted;
        Heartbeat { caller, epoch, begin, agent_version, history, kinds, capacity, instances }
    })
}

pub fn answer() -> impl Strategy<Value = Answer> {
    let confirmed =
        (kinds(), vec(list_hash(), 3)).prop_map(|(kinds, hashes)| kinds.into_iter().zip(hashes).collect());
    let lease = (0..=i64::MAX.cast_unsigned()).prop_map(Duration::from_millis);
    let epoch = option::of((1..=Version::MAX.get()).prop_map(Epoch));
    (lease, epoch, line(), confirmed, any::<bool>()).prop_map(
        |(lease, epoch, minimum_version, confirmed, report_all)| Answer {
            lease,
            epoch,
            minimum_version,
            confirmed,
            report_all,
        },
    )
}

// ── routing ─────────────────────────────────────────────────────────────────────────────────────────────────

fn targets() -> impl Strategy<Value = Targets> {
    vec((any::<u128>(), 1_u32..=10_000), 1..4).prop_map(|targets| {
        let by_id: BTreeMap<u128, u32> = targets.into_iter().collect();
        let target = |(id, weight)| Target { deployment: DeploymentId::from_u128(id), weight };
        Targets::new(by_id.into_iter().map(target).collect()).unwrap()
    })
}

/// An object of the stream of this environment: there, or gone.
pub fn routed(environment: EnvironmentId) -> impl Strategy<Value = Routed> {
    let upstream = instance().prop_map(|instance| Upstream::from(&instance));
    let deployment = (deployment_id(), select(Status::ALL), select(Protocol::ALL), vec(upstream, 0..4))
        .prop_map(|(id, status, protocol, upstreams)| Routed::Deployment { id, status, protocol, upstreams });
    let choices = (select(Follows::ALL), select(Affinity::ALL));
    let route = (hostname(), targets(), option::of(deployment_id()), choices).prop_map(
        move |(hostname, targets, previous, (follows, affinity))| {
            Routed::Route(Route { environment, hostname, targets, previous, follows, affinity })
        },
    );
    let policies = "\\PC{0,40}".prop_map(move |text| Routed::Policies { environment, policies: text.into() });
    prop_oneof![
        4 => deployment,
        4 => route,
        2 => policies,
        1 => deployment_id().prop_map(Routed::DeploymentGone),
        1 => hostname().prop_map(Routed::RouteGone),
        1 => Just(Routed::PoliciesGone(environment)),
    ]
}

fn sums() -> impl Strategy<Value = Sums> {
    let class = (1_u32..=5).prop_map(|digit| StatusClass::new(digit).unwrap());
    let counts = proptest::collection::btree_map((select(Blame::ALL), class), number(), 0..4);
    let latency = vec(number(), BUCKETS).prop_map(|counts| Histogram::new(counts.try_into().unwrap()));
    (counts, latency).prop_map(|(counts, latency)| Sums { counts, latency })
}

fn sample() -> impl Strategy<Value = Sample> {
    let told = (line(), millis(), option::of(hostname()), option::of(deployment_id()));
    let went = (text("GET|POST|DELETE"), message(), option::of(100_u16..=599), number(), select(Blame::ALL));
    (told, went).prop_map(|((id, at, hostname, deployment), went)| {
        let (method, path, status, duration_us, blame) = went;
        Sample { id, at, hostname, deployment, method, path, status, duration_us, blame }
    })
}

pub fn traffic() -> impl Strategy<Value = Traffic> {
    let sums = proptest::collection::btree_map((hostname(), deployment_id()), sums(), 0..3);
    let lists = (sums, vec(sample(), 0..3));
    (caller(), any::<u128>(), line(), number(), lists).prop_map(
        |(caller, environment, start, sequence, (sums, samples))| Traffic {
            caller,
            environment: EnvironmentId::from_u128(environment),
            start,
            sequence: Sequence(sequence),
            sums,
            samples,
        },
    )
}
