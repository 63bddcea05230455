//! Clients that know none of our additions are understood, and understand us.

use expect_test::expect;
use model::{
    deployment::Deployment,
    instance::{self, Instance},
    name::{Placement, Port},
    size::{Autoscaling, Replicas, Scaling, Threshold},
    topology::{Topology, Workload},
    watch::{Cursor, Event, Version},
};
use proto::{
    deployment_state::State,
    report_deployment_status_request::{Update, update},
};
use wire::{
    deployment::{self, Desired},
    heartbeat::Heartbeat,
    proto,
    report::{DeploymentReport, SentinelReport},
    request,
    watch::Stamp,
};

fn region() -> proto::RegionKey {
    proto::RegionKey { platform: "aws".to_owned(), name: "us-east-1".to_owned() }
}

/// What an agent is sent for a deployment with this scaling.
fn sent(scaling: Scaling) -> proto::ApplyDeployment {
    sent_of(Deployment::sample(), scaling)
}

fn sent_of(deployment: Deployment, scaling: Scaling) -> proto::ApplyDeployment {
    let stamp = Stamp { version: Version::new(7), gone: false, change: None };
    let workload = Topology::sample().with_scaling(scaling).workload(&deployment.into()).unwrap();
    match deployment::state(&workload, &stamp).state {
        Some(State::Apply(apply)) => *apply,
        other => panic!("no apply: {other:?}"),
    }
}

/// What an agent of ours takes an apply for.
fn taken(apply: proto::ApplyDeployment) -> Workload {
    let state = proto::DeploymentState { state: Some(apply.into()), version: 7, ..Default::default() };
    match deployment::event(state, &Placement::sample()).unwrap() {
        Event::Apply(change) => match change.state {
            Desired::Run { workload, .. } => workload.as_ref().clone(),
            Desired::Gone { .. } => panic!("no workload"),
        },
        other => panic!("no apply: {other:?}"),
    }
}

fn fixed(number: i64) -> Scaling {
    Scaling::Fixed(Replicas::new(number).unwrap())
}

#[test]
fn an_apply_always_has_a_port_and_bounds_that_other_agents_take() {
    for (scaling, bounds) in [(fixed(0), 1), (fixed(1), 1), (fixed(5), 5)] {
        let apply = sent(scaling);
        assert!(apply.port >= 1);
        let policy = apply.autoscaling.as_option().expect("others refuse an apply without it");
        assert_eq!((policy.min_replicas, policy.max_replicas), (bounds, bounds));
        assert_eq!(apply.replicas, i32::try_from(scaling.min().get()).unwrap());
        assert_eq!(taken(apply).scaling, scaling, "ours are told how many there really are");
    }
}

#[test]
fn an_autoscaler_has_the_same_bounds_for_everybody() {
    let replicas = |number| Replicas::new(number).unwrap();
    let auto = Autoscaling::new(replicas(2), replicas(9), Threshold::new(70).ok(), None).unwrap();
    let apply = sent(Scaling::Auto(auto));
    assert_eq!((apply.replicas, apply.fixed_replicas), (2, None));
    let policy = apply.autoscaling.as_option().unwrap();
    assert_eq!((policy.min_replicas, policy.max_replicas), (2, 9));
    assert_eq!((policy.cpu_threshold, policy.memory_threshold), (Some(70), None));
    assert_eq!(taken(apply).scaling, Scaling::Auto(auto));
}

#[test]
fn without_bounds_the_replicas_count() {
    let mut apply = sent(fixed(3));
    (apply.fixed_replicas, apply.autoscaling) = (None, None.into());
    assert_eq!(taken(apply).scaling, fixed(3));
}

#[test]
fn port_0_is_8080() {
    let mut apply = sent_of(Deployment::sample().with_port(9000), Scaling::default());
    assert_eq!(taken(apply.clone()).deployment.port.get(), 9000);
    apply.port = 0;
    assert_eq!(taken(apply).deployment.port, Port::DEFAULT);
}

#[test]
fn what_only_we_send_has_defaults() {
    let mut apply = sent(Scaling::default());
    apply.shutdown_grace_seconds = None;
    apply.upstream_protocol = String::new();
    apply.shutdown_signal = String::new();
    let deployment = taken(apply).deployment;
    assert_eq!(deployment.shutdown, model::deployment::Shutdown::default());
    assert_eq!(deployment.protocol, model::deployment::Protocol::Http1);
}

#[test]
fn a_health_check_travels_as_the_json_that_others_know() {
    let apply = sent_of(Deployment::sample().with_health("/health?full=1"), Scaling::default());
    expect![[
        r#"{"method":"GET","path":"/health?full=1","intervalSeconds":10,"timeoutSeconds":5,"failureThreshold":3,"initialDelaySeconds":0}"#
    ]]
    .assert_eq(str::from_utf8(apply.healthcheck.as_ref().unwrap()).unwrap());
    assert_eq!(apply.region.as_deref(), Some("aws/us-east-1"));
}

#[test]
fn a_client_without_an_instance_id_is_foreign_and_its_shard_the_default() {
    let caller = request::caller(Some(&region()), "", "").unwrap();
    assert_eq!(caller.placement, Placement::sample());
    assert_eq!(caller.instance, None);
    assert_eq!(request::cursor(0, ""), Ok(Cursor::default()));
    let above = request::cursor(u64::MAX, "").unwrap();
    assert_eq!(above.version, Version::MAX, "it is above every clock, which is all that matters");
}

#[test]
fn a_report_with_the_base_fields_alone_is_understood() {
    let told = |name: &str, status| update::Instance {
        k8s_name: name.to_owned(),
        status: proto::report_deployment_status_request::update::instance::Status::into(status),
        ..Default::default()
    };
    use update::instance::Status::{STATUS_FAILED, STATUS_PENDING, STATUS_RUNNING, STATUS_UNSPECIFIED};
    let mut running = told("a-1", STATUS_RUNNING);
    running.address = "10.0.0.7:8080".to_owned();
    running.cpu_millicores = 250;
    let instances = vec![
        running,
        told("a-2", STATUS_PENDING),
        told("a-3", STATUS_FAILED),
        told("a-4", STATUS_UNSPECIFIED),
    ];
    let request = proto::ReportDeploymentStatusRequest {
        change: Some(Update { k8s_name: "dep-a".to_owned(), instances }.into()),
        region: region().into(),
        ..Default::default()
    };
    let report = DeploymentReport::try_from(request).unwrap();
    assert_eq!(report.heading.epoch, None);
    assert_eq!(report.heading.observed, None);
    let instances = report.instances.unwrap();
    let seen: Vec<(instance::Status, bool)> =
        instances.iter().map(|seen| (seen.status, seen.ready)).collect();
    use instance::Status::{Failed, Pending, Running};
    assert_eq!(seen, [(Running, true), (Pending, false), (Failed, false), (Pending, false)]);
    assert_eq!(instances[0].address, Instance::sample(7).address);
    assert_eq!((instances[0].cpu, instances[0].memory), (Some(model::size::CpuMillis::DEFAULT), None));
    assert_eq!(instances[1].address, None);
}

#[test]
fn a_report_is_not_refused_over_what_is_only_shown() {
    let instance = update::Instance {
        k8s_name: "a-1".to_owned(),
        cpu_millicores: 3,
        memory_mib: 9_999_999,
        reason: "Out Of\u{1b} Pods!".to_owned(),
        message: "x".repeat(100_000),
        ..Default::default()
    };
    let request = proto::ReportDeploymentStatusRequest {
        change: Some(Update { k8s_name: "dep-a".to_owned(), instances: vec![instance] }.into()),
        region: region().into(),
        ..Default::default()
    };
    let instances = DeploymentReport::try_from(request).unwrap().instances.unwrap();
    assert_eq!((instances[0].cpu, instances[0].memory), (None, None));
    assert_eq!(instances[0].reason.as_ref().unwrap().as_str(), "OutOfPods");
    assert_eq!(instances[0].message.as_ref().unwrap().as_str().len(), 1024);
}

#[test]
fn a_report_of_sentinels_with_the_base_fields_alone_is_understood() {
    let request = proto::ReportSentinelStatusRequest {
        k8s_name: "sen-a".to_owned(),
        available_replicas: 2,
        health: proto::Health::HEALTH_HEALTHY.into(),
        region: region().into(),
        ..Default::default()
    };
    let report = SentinelReport::try_from(request).unwrap();
    assert_eq!((report.available.get(), report.ready.get()), (2, 2));
    assert_eq!((report.id, report.running_image), (None, None));
    assert_eq!(report.health, model::sentinel::Health::Healthy);
}

#[test]
fn a_heartbeat_may_say_nothing_but_where_it_is_from() {
    let request = proto::HeartbeatRequest { region: region().into(), ..Default::default() };
    let heartbeat = Heartbeat::try_from(request).unwrap();
    assert_eq!(heartbeat.caller.instance, None);
    assert_eq!((heartbeat.epoch, heartbeat.begin, heartbeat.kinds), (None, None, vec![]));
}

/// `printf 'dep-sample-7\x0010.0.0.7:8080\x00running' | sha256sum | cut -c1-16`, read little-endian.
#[test]
fn the_digest_of_instances_is_the_one_other_clients_compute() {
    let one = wire::heartbeat::instance_census([&Instance::sample(7)]);
    expect!["1 88f9e5ff529056e6"].assert_eq(&format!("{} {:016x}", one.count, one.digest.swap_bytes()));
    let two = wire::heartbeat::instance_census([&Instance::sample(7), &Instance::sample(8)]);
    let turned = wire::heartbeat::instance_census([&Instance::sample(8), &Instance::sample(7)]);
    assert_eq!(two, turned);
    assert_ne!(two.digest, one.digest);
    let moved = Instance { address: None, ..Instance::sample(7) };
    assert_ne!(wire::heartbeat::instance_census([&moved]), one);
    let failed = Instance { status: instance::Status::Failed, ..Instance::sample(7) };
    assert_ne!(wire::heartbeat::instance_census([&failed]), one);
}
