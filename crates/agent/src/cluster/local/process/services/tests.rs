//! Doors that open, lead and shut, with real connections.

use super::*;
use runtime::random::Random;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A pod that says its name to everybody.
async fn pod(name: &'static str, tasks: &Tasks) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tasks.clone();
    tasks.spawn("pod", async move {
        let answer = async |mut stream: TcpStream| stream.write_all(name.as_bytes()).await;
        serve("pod", listener, 10, &serving, move |stream, _| async move {
            answer(stream).await.unwrap();
        })
        .await;
    });
    address
}

async fn ask(address: SocketAddr) -> String {
    let mut answer = String::new();
    let mut stream = TcpStream::connect(address).await.unwrap();
    // One that is cut off has heard nothing.
    let _cut = stream.read_to_string(&mut answer).await;
    answer
}

fn wanted(targets: &[SocketAddr]) -> (Door, Wanted) {
    let door = Door::new("sentinel", "s-1", 8040);
    (door.clone(), [(door, targets.to_vec())].into())
}

fn services(home: &Path) -> (Services, Tasks) {
    let tasks = Tasks::new();
    let ports = Ports::new(15_000..=19_999, &Random::system());
    (Services::new(home, ports, tasks.clone()), tasks)
}

#[tokio::test]
async fn a_door_leads_to_each_ready_pod_in_turn_and_passes_by_who_refuses() {
    let (home, tasks) = (tempfile::tempdir().unwrap(), Tasks::new());
    let (mut services, _) = services(home.path());
    let (one, two) = (pod("one", &tasks).await, pod("two", &tasks).await);
    let refusing = {
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
        gone.local_addr().unwrap()
    };
    let (door, pods) = wanted(&[one, two]);
    services.set(&pods).await;
    let address = services.addresses().borrow()[&door];
    let mut answers = Vec::new();
    for _ in 0..4 {
        answers.push(ask(address).await);
    }
    assert_eq!(answers, ["one", "two", "one", "two"]);
    services.set(&wanted(&[refusing, two]).1).await;
    for _ in 0..4 {
        assert_eq!(ask(address).await, "two");
    }
    services.set(&wanted(&[]).1).await;
    assert_eq!(ask(address).await, "", "nobody is there");
    assert_eq!(services.addresses().borrow()[&door], address, "it stays while its pods come and go");
    tasks.abort().await;
}

#[tokio::test]
async fn a_door_that_is_shut_lets_everybody_go() {
    let (home, tasks) = (tempfile::tempdir().unwrap(), Tasks::new());
    let (mut services, all) = services(home.path());
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (door, pods) = wanted(&[silent.local_addr().unwrap()]);
    services.set(&pods).await;
    let address = services.addresses().borrow()[&door];
    let mut client = TcpStream::connect(address).await.unwrap();
    let (_held, _) = silent.accept().await.unwrap();
    services.set(&Wanted::new()).await;
    assert_eq!(client.read(&mut [0]).await.unwrap_or_default(), 0, "it is cut off");
    assert_eq!(services.addresses().borrow().len(), 0);
    all.stop(Duration::from_secs(5)).await;
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens");
    tasks.abort().await;
}

#[tokio::test]
async fn a_door_has_its_port_again_after_a_restart_if_nobody_took_it() {
    let home = tempfile::tempdir().unwrap();
    let (door, pods) = wanted(&[]);
    let (mut first, tasks) = services(home.path());
    first.set(&pods).await;
    let address = first.addresses().borrow()[&door];
    tasks.stop(Duration::from_secs(5)).await;
    drop(first);

    let (mut second, tasks) = services(home.path());
    second.set(&pods).await;
    assert_eq!(second.addresses().borrow()[&door], address);
    tasks.stop(Duration::from_secs(5)).await;
    drop(second);

    let stranger = TcpListener::bind(address).await.unwrap();
    let (mut third, tasks) = services(home.path());
    third.set(&pods).await;
    assert_ne!(third.addresses().borrow()[&door], address);
    drop(stranger);
    tasks.stop(Duration::from_secs(5)).await;
}
