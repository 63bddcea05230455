//! Whatever a pod does, it takes no more of the machine than it is given.

use std::time::Duration;

use super::{
    machine::{size, until},
    node::{Machine, last, of_sample, of_script},
};

/// As much as one prints: a thousand files and a piece of the next.
const PRINTED: u64 = (64 << 20) + 1000;

#[tokio::test(flavor = "multi_thread")]
async fn output_takes_no_more_than_its_files() {
    let machine = Machine::new();
    let other = machine.run(of_sample());
    other.until_ready().await;
    let script = format!("yes 0123456789012345 | head -c {PRINTED}; echo over >&2; exit 1");
    let pod = machine.run(of_script(&script));
    let directory = machine.directory(&pod);
    let mut most = 0;
    until("it has printed all", || {
        most = most.max(size(&directory));
        assert!(other.get("/").starts_with("HTTP/1.1 200"), "others are not disturbed");
        let status = pod.status()?;
        (last(&status)["exitCode"] == 1).then_some(())
    })
    .await;
    assert!(most > 64 << 10, "something was printed");
    assert!(most <= 2 * (64 << 10), "{most} bytes in two files of 64 KiB");
    let status = pod.status().expect("it goes on");
    let said = last(&status)["message"].as_str().expect("a message");
    assert!(said.ends_with("over") && said.contains("0123456789") && said.len() <= 2048, "{said}");
    assert_eq!(other.status().expect("it runs")["containerStatuses"][0]["restartCount"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pods_come_and_go_and_nothing_piles_up() {
    let machine = Machine::new();
    let local = machine.home.path().join("local/pods");
    for _ in 0..3 {
        let mut pods: Vec<_> = (0..8).map(|_| machine.run(of_sample())).collect();
        for pod in &pods {
            pod.until_ready().await;
        }
        for pod in &mut pods {
            pod.stop(Duration::from_secs(10)).await;
        }
        assert_eq!(std::fs::read_dir(&local).expect("a directory").count(), 0);
    }
    assert_eq!(machine.tasks.running().get("pod"), None);
}
