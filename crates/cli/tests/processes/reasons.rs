//! What is told of pods that run, and of those that cannot.

use std::{net::TcpListener, time::Duration};

use agent::cluster::local::{
    node::{Node as _, Secrets},
    process::OpenError,
};
use serde_json::json;

use super::{
    machine::until,
    node::{Machine, last, of_command, of_image, of_sample, of_script, open, waiting, with},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_answers_where_it_says_and_leaves_nothing() {
    let machine = Machine::new();
    let mut pods = [machine.run(of_sample()), machine.run(of_sample())];
    assert_ne!(pods[0].port(), pods[1].port(), "each has a port of its own");
    for pod in &pods {
        pod.until_ready().await;
        let answer = pod.get("/hello");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"path\":\"/hello\""), "{answer}");
        assert!(answer.contains("\"region\":\"local/eu\""), "{answer}");
        let status = pod.status().expect("it runs");
        assert_eq!((&status["phase"], &status["podIP"]), (&json!("Running"), &json!("127.0.0.1")));
    }
    for pod in &mut pods {
        let directory = machine.directory(pod);
        assert!(directory.exists());
        pod.stop(Duration::from_secs(20)).await;
        assert!(!directory.exists(), "nothing of it is left");
        assert!(TcpListener::bind(("127.0.0.1", pod.port())).is_ok(), "nobody listens");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_run_is_told_with_its_reason() {
    let machine = Machine::new();
    let missing = machine.run(of_command(&["krane-has-no-such-program"]));
    let status =
        missing.until("it keeps failing", |status| waiting(status)["reason"] == "CrashLoopBackOff").await;
    assert_eq!((&last(&status)["reason"], &last(&status)["exitCode"]), (&json!("StartError"), &json!(128)));
    let said = last(&status)["message"].as_str().expect("a message");
    assert!(
        said.ends_with("exec: \"krane-has-no-such-program\": executable file not found in $PATH"),
        "{said}"
    );

    let crashing = machine.run(of_script("echo no disk; exit 3"));
    let is_looping = |status: &serde_json::Value| {
        waiting(status)["reason"] == "CrashLoopBackOff" && status["containerStatuses"][0]["restartCount"] == 3
    };
    let status = crashing.until("it keeps ending", is_looping).await;
    assert_eq!((&last(&status)["exitCode"], &last(&status)["message"]), (&json!(3), &json!("no disk")));
    assert_eq!(status["phase"], "Running");
    let said = waiting(&status)["message"].as_str().expect("a message");
    assert!(
        said.starts_with("back-off 400ms restarting failed container=deployment pod=web-1_ws(u"),
        "{said}"
    );

    let unknown = machine.run(of_image("example/unknown:1"));
    let status =
        unknown.until("it is not started", |status| waiting(status)["reason"] == "ErrImagePull").await;
    let said = waiting(&status)["message"].as_str().expect("a message");
    assert!(said.contains("[local.images] \"example/unknown\" = [\"./program\"]"), "{said}");
    assert_eq!(status["phase"], "Pending");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_somebody_took_is_told_and_the_next_pod_has_another() {
    let machine = Machine::new();
    let mut pod = of_sample();
    machine.node.bind(&mut pod);
    let port = pod["spec"]["containers"][0]["ports"][0]["containerPort"].as_u64().expect("a port");
    let port = u16::try_from(port).expect("a port");
    assert!(TcpListener::bind(("127.0.0.1", port)).is_err(), "it is held until the pod starts");
    machine.ports.release(port);
    let stranger = TcpListener::bind(("127.0.0.1", port)).expect("a stranger is quicker");
    let mut rejected = machine.start(pod, Secrets::new(|_, _| None));
    let status = rejected.until("it is rejected", |status| status["phase"] == "Failed").await;
    assert_eq!(status["reason"], "NodePorts");
    let told = format!("Pod was rejected: port {port} is taken by another process of this machine");
    assert_eq!(status["message"], told);
    let other = machine.run(of_sample());
    other.until_ready().await;
    assert_ne!(other.port(), port);
    rejected.stop(Duration::ZERO).await;
    drop(stranger);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_ready_when_it_answers_and_started_anew_when_it_is_not_well() {
    let machine = Machine::new();
    let question = json!({ "httpGet": { "path": "/health", "port": 8080 } });
    let slow = machine.run(with(of_image("test/slow:1"), "readinessProbe", question));
    let is_running =
        |status: &serde_json::Value| !status["containerStatuses"][0]["state"]["running"].is_null();
    slow.until("it runs", is_running).await;
    assert!(!slow.is_ready(), "it does not answer yet");
    slow.until_ready().await;
    assert!(slow.get("/").starts_with("HTTP/1.1 200"), "what is ready answers");

    let script = "echo begins; touch alive; while test -e alive; do sleep 0.05; done; exec sleep 1000";
    let question = json!({ "exec": { "command": ["test", "-e", "alive"] }, "periodSeconds": 1, "failureThreshold": 1,
        "initialDelaySeconds": 1 });
    let pod = machine.run(with(of_script(script), "livenessProbe", question));
    let root = machine.directory(&pod).join("root");
    until("it works in a directory of its own", || root.join("alive").exists().then_some(())).await;
    std::fs::remove_file(root.join("alive")).expect("it is there");
    let status =
        pod.until("it was started anew", |status| status["containerStatuses"][0]["restartCount"] == 1).await;
    assert_eq!(last(&status)["exitCode"], 143, "it was asked to end");
    let said = last(&status)["message"].as_str().expect("a message");
    assert_eq!(said, "failed its liveness probe: test -e alive ended with code 1\nbegins");
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_variables_and_files_and_waited_for() {
    let machine = Machine::new();
    let there = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_there = there.clone();
    let secrets = Secrets::new(move |namespace, name| {
        assert_eq!((namespace, name), ("ws", "s"));
        let is_there = is_there.load(std::sync::atomic::Ordering::Relaxed);
        is_there.then(|| json!({ "data": { "KEY": "dmFsdWU=" } }))
    });
    let pod = with(
        of_script("cp etc/krane/KEY file; echo $KEY > variable; sleep 1000"),
        "envFrom",
        json!([{ "secretRef": { "name": "s" } }]),
    );
    let mut pod = with(pod, "volumeMounts", json!([{ "name": "v", "mountPath": "/etc/krane" }]));
    pod["spec"]["volumes"] = json!([{ "name": "v", "secret": { "secretName": "s" } }]);
    let pod = machine.run_with(pod, secrets);
    let is_waiting = |status: &serde_json::Value| waiting(status)["reason"] == "CreateContainerConfigError";
    let status = pod.until("it waits for the Secret", is_waiting).await;
    assert_eq!(waiting(&status)["message"], "secret \"s\" not found");
    there.store(true, std::sync::atomic::Ordering::Relaxed);
    pod.until_ready().await;
    let root = machine.directory(&pod).join("root");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).ok().filter(|text| !text.is_empty());
    assert_eq!(until("it has read both", || read("variable")).await, "value\n");
    assert_eq!(read("file").as_deref(), Some("value"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_has_one_owner_and_what_an_earlier_one_left_is_removed() {
    let machine = Machine::new();
    let used = open(&machine.home, &machine.ports, &machine.tasks).err().expect("it is used");
    assert!(matches!(used, OpenError::Used(_)), "{used}");
    let left = machine.home.path().join("local/pods/ws_web_1/root");
    std::fs::create_dir_all(&left).expect("a directory");
    let Machine { home, ports, node, tasks } = machine;
    drop(node);
    let _next = open(&home, &ports, &tasks).expect("it is free");
    assert!(!left.exists());
}
