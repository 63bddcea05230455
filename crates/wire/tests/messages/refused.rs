//! What cannot be right is refused, with every field and its reason.

use expect_test::{Expect, expect};
use model::{
    deployment::Deployment, invalid::Invalid, limits, sentinel::Sentinel, topology::Topology, watch::Version,
};
use proto::{
    deployment_state::State,
    report_deployment_status_request::{Update, update},
};
use wire::{
    deployment,
    heartbeat::Heartbeat,
    proto,
    report::{ApplyReport, DeploymentReport, Inventory, SentinelReport},
    request::Sync,
    route, sentinel,
    traffic::Traffic,
    watch::Stamp,
};

use super::{
    nouns,
    samples::{environment, here},
};

fn region() -> proto::RegionKey {
    proto::RegionKey { platform: "aws".to_owned(), name: "us-east-1".to_owned() }
}

fn check<T: std::fmt::Debug>(read: Result<T, Invalid>, expected: &Expect) {
    let problems = read.expect_err("this cannot be right");
    let lines: Vec<String> = problems.problems().iter().map(ToString::to_string).collect();
    expected.assert_eq(&lines.join("\n"));
}

fn stamp() -> Stamp {
    Stamp { version: Version::new(7), gone: false, change: None }
}

fn update(instances: Vec<update::Instance>) -> proto::ReportDeploymentStatusRequest {
    proto::ReportDeploymentStatusRequest {
        change: Some(Update { k8s_name: "dep-a".to_owned(), instances }.into()),
        region: region().into(),
        ..Default::default()
    }
}

#[test]
fn every_problem_of_a_report_is_told_with_its_field() {
    let bad = update::Instance {
        k8s_name: "Not A Pod".to_owned(),
        address: "nowhere".to_owned(),
        cpu_millicores: -1,
        memory_mib: -1,
        status: 9.into(),
        zone: "-".to_owned(),
        pod_uid: " ".to_owned(),
        ..Default::default()
    };
    let good = |name: &str| update::Instance { k8s_name: name.to_owned(), ..Default::default() };
    let request = proto::ReportDeploymentStatusRequest {
        change: Some(Update { k8s_name: "9".to_owned(), instances: vec![good("a"), bad, good("a")] }.into()),
        region: proto::RegionKey { platform: String::new(), name: "Us".to_owned() }.into(),
        shard: "ä".to_owned(),
        instance_id: "x".repeat(300),
        history: "hist_1".to_owned(),
        epoch: u64::MAX,
        sequence: u64::MAX,
        observed_version: u64::MAX,
    };
    check(
        DeploymentReport::try_from(request),
        &expect![[r#"
        region.platform: a platform cannot be empty
        region.name: a region name cannot have 'U' at position 0; it is made of a-z, 0-9 and '-'
        shard: a shard cannot have 'ä' at position 0; it is made of a-z, 0-9 and '-'
        instance_id: a line of text has at most 256 characters, this one has 300
        epoch: is a whole number from 0 to 9223372036854775807
        sequence: is a whole number from 0 to 9223372036854775807
        history: an id has 26 characters after hist_, this one has 1
        observed_version: is a whole number from 0 to 9223372036854775807
        update.k8s_name: a Kubernetes name starts with a letter
        update.instances[1].k8s_name: a pod name cannot have 'N' at position 0; it is made of a-z, 0-9, '-' and '.'
        update.instances[1].address: an address is a host and a port, like 10.0.0.7:8080 or [fd00::7]:8080
        update.instances[1].cpu_millicores: is -1, and cannot be below 0
        update.instances[1].memory_mib: is -1, and cannot be below 0
        update.instances[1].status: has no value 9
        update.instances[1].zone: a label value starts and ends with a letter or digit
        update.instances[1].pod_uid: a line of text neither starts nor ends with a space
        update.instances[2].k8s_name: is there already"#]],
    );
}

#[test]
fn a_request_without_a_place_or_a_change_is_refused() {
    check(
        DeploymentReport::try_from(proto::ReportDeploymentStatusRequest::default()),
        &expect![[r#"
        region: is required
        change: is required"#]],
    );
    check(
        SentinelReport::try_from(proto::ReportSentinelStatusRequest::default()),
        &expect![[r#"
        region: is required
        k8s_name: a Kubernetes name cannot be empty"#]],
    );
    check(
        ApplyReport::try_from(proto::ReportApplyErrorRequest::default()),
        &expect![[r#"
        region: is required
        observed_version: must be at least 1
        kind: is required"#]],
    );
    check(
        Traffic::try_from(proto::ReportTrafficRequest::default()),
        &expect![[r#"
        region: is required
        environment_id: an id that starts with env_ is wanted, this one starts with ""
        start_id: a line of text cannot be empty"#]],
    );
}

#[test]
fn lists_are_bounded() {
    let instance = |number: usize| update::Instance { k8s_name: format!("a-{number}"), ..Default::default() };
    let instances = |count| update((0..count).map(instance).collect());
    assert!(DeploymentReport::try_from(instances(limits::INSTANCES)).is_ok());
    check(
        DeploymentReport::try_from(instances(limits::INSTANCES + 1)),
        &expect!["update.instances: has at most 2000 elements, this one has 2001"],
    );

    let names = |count| proto::ReportInventoryRequest {
        region: region().into(),
        deployments: (0..count).map(|number| format!("d{number}")).collect(),
        sentinels: (0..count).map(|number| format!("s{number}")).collect(),
        ..Default::default()
    };
    assert!(Inventory::try_from(names(limits::INVENTORY)).is_ok());
    check(
        Inventory::try_from(names(limits::INVENTORY + 1)),
        &expect![[r#"
        deployments: has at most 50000 elements, this one has 50001
        sentinels: has at most 50000 elements, this one has 50001"#]],
    );

    let kind = |kind: proto::Kind| proto::KindStatus { kind: kind.into(), ..Default::default() };
    let kinds = |kinds: &[proto::Kind]| proto::HeartbeatRequest {
        region: region().into(),
        kinds: kinds.iter().copied().map(kind).collect(),
        ..Default::default()
    };
    use proto::Kind::{KIND_DEPLOYMENT, KIND_SENTINEL, KIND_UNSPECIFIED};
    check(
        Heartbeat::try_from(kinds(&[KIND_DEPLOYMENT; 4])),
        &expect!["kinds: has at most 3 elements, this one has 4"],
    );
    check(
        Heartbeat::try_from(kinds(&[KIND_DEPLOYMENT, KIND_SENTINEL, KIND_DEPLOYMENT])),
        &expect!["kinds[2].kind: deployment is there already"],
    );
    check(Heartbeat::try_from(kinds(&[KIND_UNSPECIFIED])), &expect!["kinds[0].kind: is required"]);
    let census = proto::KindCensus { kind: 77.into(), ..Default::default() };
    let sync =
        proto::SyncDesiredStateRequest { region: region().into(), holds: vec![census], ..Default::default() };
    check(Sync::try_from(&sync), &expect!["holds[0].kind: has no value 77"]);
}

#[test]
fn a_heartbeat_that_cannot_be_is_refused() {
    let request = proto::HeartbeatRequest {
        region: region().into(),
        begin: proto::Begin::default().into(),
        capacity: proto::Capacity { cpu_millicores: -1, memory_mib: -1, pods: 1 }.into(),
        kinds: vec![proto::KindStatus {
            kind: proto::Kind::KIND_SENTINEL.into(),
            breaker: "ajar".to_owned(),
            held: u64::MAX,
            held_back: proto::HeldBack { hash: vec![1; 31], count: 1 }.into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    check(
        Heartbeat::try_from(request),
        &expect![[r#"
        begin.cluster_uid: a line of text cannot be empty
        kinds[0].held: is a whole number from 0 to 9223372036854775807
        kinds[0].breaker: is none of closed, open, half_open
        kinds[0].held_back.hash: has 32 bytes, this one has 31
        capacity.cpu_millicores: is -1, and cannot be below 0
        capacity.memory_mib: is -1, and cannot be below 0"#]],
    );
}

#[test]
fn the_answer_to_an_input_that_is_wrong_throughout_is_short() {
    let bad = update::Instance { k8s_name: "Ä".to_owned(), address: "x".repeat(5000), ..Default::default() };
    let invalid = DeploymentReport::try_from(update(vec![bad; limits::INSTANCES])).unwrap_err();
    assert_eq!(invalid.problems().len(), limits::PROBLEMS);
    assert!(invalid.to_string().len() < 8000, "{}", invalid.to_string().len());
}

fn apply() -> proto::ApplyDeployment {
    let workload = Topology::sample().workload(&Deployment::sample().into()).unwrap();
    match deployment::state(&workload, &stamp()).state {
        Some(State::Apply(apply)) => *apply,
        other => panic!("no apply: {other:?}"),
    }
}

fn event(apply: proto::ApplyDeployment) -> proto::DeploymentState {
    proto::DeploymentState { state: Some(apply.into()), version: 7, ..Default::default() }
}

#[test]
fn an_apply_that_cannot_be_run_is_refused_with_every_reason() {
    let bad = proto::ApplyDeployment {
        replicas: -1,
        port: 70_000,
        cpu_millicores: -5,
        memory_mib: 1,
        command: vec![String::new(), "\0".to_owned()],
        shutdown_signal: "SIGSEGV".to_owned(),
        healthcheck: Some(br#"{"method":"PUT","path":"x","intervalSeconds":0,"timeoutSeconds":-1,"failureThreshold":0,"initialDelaySeconds":0}"#.to_vec()),
        region: Some("gcp/europe-west1".to_owned()),
        autoscaling: proto::AutoscalingPolicy { cpu_threshold: Some(0), ..Default::default() }.into(),
        ephemeral_storage: proto::EphemeralStorage { size_mib: -1 }.into(),
        shutdown_grace_seconds: Some(-1),
        created_at_ms: -1,
        upstream_protocol: "spdy".to_owned(),
        fixed_replicas: None,
        ..apply()
    };
    check(
        deployment::event(event(bad), &here()),
        &expect![[r#"
            apply.autoscaling.cpu_threshold: a threshold in percent is a whole number from 1 to 100, not 0
            apply.cpu_millicores: cpu in millicores is a whole number from 10 to 64000, not -5
            apply.memory_mib: memory in MiB is a whole number from 16 to 524288, not 1
            apply.ephemeral_storage.size_mib: storage in MiB is a whole number from 1 to 1048576, not -1
            apply.port: a port is a number from 1 to 65535
            apply.upstream_protocol: "spdy" is not a protocol; choose one of http1, h2c
            apply.command: does not start with an empty word
            apply.command[1]: cannot have a NUL character
            apply.shutdown_signal: "SIGSEGV" is not a signal; choose one of SIGTERM, SIGINT, SIGQUIT, SIGKILL, SIGHUP, SIGUSR1, SIGUSR2
            apply.shutdown_grace_seconds: a time in seconds is a whole number from 0 to 86400, not -1
            apply.healthcheck.intervalSeconds: is 0, and must be at least 1
            apply.healthcheck.timeoutSeconds: is -1, and must be at least 1
            apply.healthcheck.method: "PUT" is not a health check's method; choose one of GET, POST
            apply.healthcheck.path: a health check's path starts with a slash
            apply.created_at_ms: is -1, and cannot be below 0
            apply.region: is not aws/us-east-1"#]],
    );
    let health = proto::ApplyDeployment { healthcheck: Some(b"no json".to_vec()), ..apply() };
    check(
        deployment::event(event(health), &here()),
        &expect!["apply.healthcheck: is no health check: expected ident at line 1 column 2"],
    );
    // A client of others' may say nothing of bounds; then this is all there is.
    let negative =
        proto::ApplyDeployment { replicas: -1, autoscaling: None.into(), fixed_replicas: None, ..apply() };
    check(
        deployment::event(event(negative), &here()),
        &expect!["apply.replicas: the number of replicas is a whole number from 0 to 1000, not -1"],
    );
    let fixed = proto::ApplyDeployment { fixed_replicas: Some(1001), ..apply() };
    check(
        deployment::event(event(fixed), &here()),
        &expect!["apply.fixed_replicas: the number of replicas is a whole number from 0 to 1000, not 1001"],
    );
}

#[test]
fn a_state_says_what_and_when() {
    check(
        deployment::event(proto::DeploymentState::default(), &here()),
        &expect![[r#"
        version: must be at least 1
        state: is required"#]],
    );
    let delete = proto::DeleteDeployment { version: 8, ..Default::default() };
    let state = proto::DeploymentState { state: Some(delete.into()), version: 7, ..Default::default() };
    check(
        deployment::event(state, &here()),
        &expect![[r#"
        delete.k8s_namespace: a namespace cannot be empty
        delete.k8s_name: a Kubernetes name cannot be empty
        delete.deployment_id: an id that starts with dep_ is wanted, this one starts with ""
        delete.version: is 8, but the version around it is 7"#]],
    );
    check(
        route::event(proto::RouteEvent::default(), environment()),
        &expect![[r#"
        version: must be at least 1
        event: is required"#]],
    );
    let mark = proto::Bookmark { kind: 3.into(), count: Some(1), about: 9.into(), ..Default::default() };
    check(
        deployment::event(mark.into(), &here()),
        &expect![[r#"
        bookmark.about: has no value 9
        bookmark.history: an id that starts with hist_ is wanted, this one starts with ""
        bookmark.digest: is required"#]],
    );
    check(
        deployment::event(proto::Bookmark::default().into(), &here()),
        &expect!["bookmark.kind: is required"],
    );
}

#[test]
fn a_sentinel_with_the_credentials_of_another_is_refused_and_they_are_not_told() {
    let sentinel = Sentinel::sample();
    let mut other = Sentinel::sample();
    other.id = model::id::SentinelId::sample(2);
    let credentials = nouns::credentials(&other);
    let state = sentinel::state(&sentinel, &credentials, &stamp());
    check(
        sentinel::event(state.clone(), &here()),
        &expect!["apply.credential: is the token of another sentinel"],
    );
    let mut garbage = state;
    let Some(proto::sentinel_state::State::Apply(apply)) = &mut garbage.state else { panic!("no apply") };
    apply.credential = format!("{}x", credentials.token.reveal());
    apply.gossip_keys = vec![vec![7; 31]];
    check(
        sentinel::event(garbage, &here()),
        &expect![[r#"
        apply.credential: is no token of a sentinel
        apply.gossip_keys[0]: has 32 bytes"#]],
    );
}

#[test]
fn policies_of_another_environment_are_refused() {
    let other = model::id::EnvironmentId::sample(2);
    let policies = route::Routed::Policies { environment: other, policies: "[]".into() };
    check(
        route::event(route::state(&policies, &stamp()), environment()),
        &expect!["policies.environment_id: is not env_01hf7yat000000000000000001"],
    );
    let gone = route::state(&route::Routed::PoliciesGone(other), &Stamp { gone: true, ..stamp() });
    check(
        route::event(gone, environment()),
        &expect!["delete_policies.environment_id: is not env_01hf7yat000000000000000001"],
    );
}
