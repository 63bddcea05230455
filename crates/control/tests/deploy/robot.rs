//! An agent without a cluster: it does at once what it is told, and the name of an image says how that ends.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use model::{
    cluster::{ApplyError, ApplyReason, Epoch, Sequence},
    id::InstanceId,
    instance::{Instance, Reason, Status},
    name::{Message, Placement},
    sentinel::{Health, Sentinel},
    size::Replicas,
    time::Millis,
    topology::Workload,
    watch::{Cursor, Version},
};
use runtime::{clock::Clock, shutdown::Tasks};
use store::{
    ApplyReport, ApplySubject, Item, Report, Reported, SentinelStatus, SentinelSubject, State, Store, Tail,
    Topic,
};

use super::scene::Scene;

struct Robot {
    store: Store,
    clock: Clock,
    placement: Placement,
    epochs: Arc<Mutex<BTreeMap<Placement, Epoch>>>,
    sequence: u64,
}

pub fn start(scene: &Scene, placement: Placement, tasks: &Tasks) {
    let (tail, stopping): (Tail, _) = (scene.tail.clone(), tasks.token());
    let mut robot = Robot {
        store: scene.store.clone(),
        clock: scene.clock.clone(),
        placement: placement.clone(),
        epochs: scene.epochs(),
        sequence: 0,
    };
    tasks.spawn("robot", async move {
        let topics =
            vec![Topic::Deployments(placement.clone()), Topic::Sentinels(placement.clone()), Topic::Clusters];
        let mut stream = tail.subscribe(topics.clone(), Cursor::default()).await.unwrap();
        let mut silent = false;
        stopping
            .run_until_cancelled(async {
                while let Some(mut picture) = stream.next().await {
                    let is_silent = robot.epoch() == Epoch(0);
                    if !is_silent && std::mem::replace(&mut silent, is_silent) {
                        // It is back, and tells everything again.
                        picture = tail.picture(&topics, Cursor::default());
                    }
                    silent = is_silent;
                    for item in picture.items.iter().filter(|_| !is_silent) {
                        robot.act(item).await;
                    }
                }
            })
            .await;
    });
}

impl Robot {
    fn epoch(&self) -> Epoch {
        self.epochs.lock().unwrap()[&self.placement]
    }

    async fn act(&mut self, item: &Item) {
        match &item.state {
            State::Deployment(workload) => self.run(workload, item.gone, item.version).await,
            State::Sentinel(sentinel) if !item.gone => self.serve(sentinel).await,
            _ => {}
        }
    }

    async fn run(&mut self, workload: &Workload, gone: bool, version: Version) {
        let image = workload.deployment.image.to_string();
        let change = if gone {
            Reported::Delete
        } else {
            let instance = |nth: u32| {
                let name = format!("{}-{nth}", workload.deployment.k8s_name);
                let id = InstanceId::from_u128(
                    workload.deployment.id.as_u128() ^ (u128::from(nth) << 40) ^ self.salt(),
                );
                (id, instance(&name, &image))
            };
            Reported::Update((0..workload.scaling.min().get()).map(instance).collect())
        };
        let (epoch, sequence) = self.next();
        let report = Report {
            placement: self.placement.clone(),
            epoch: Some(epoch),
            sequence,
            deployment: workload.deployment.k8s_name.clone(),
            change,
        };
        let at = Millis(self.clock.now().millis());
        let refused = (image.contains("refused") && !gone).then(|| ApplyReport {
            placement: self.placement.clone(),
            epoch: Some(epoch),
            sequence,
            subject: ApplySubject::Deployment(workload.deployment.id),
            observed_version: version,
            error: Some(ApplyError {
                reason: ApplyReason::Refused,
                message: Message::cut("spec.template: no"),
                since: at,
            }),
        });
        let told = self.store.retry(async || {
            let mut write = self.store.begin().await?;
            write.take_reports(std::slice::from_ref(&report), at).await?;
            if let Some(refused) = &refused {
                write.take_apply_errors(std::slice::from_ref(refused)).await?;
            }
            write.commit().await
        });
        told.await.unwrap();
    }

    async fn serve(&mut self, sentinel: &Sentinel) {
        let (epoch, sequence) = self.next();
        // An image whose tag says so never comes up.
        let is_bad = sentinel.desired.image.to_string().ends_with(":bad");
        let replicas = if is_bad { Replicas::MIN } else { sentinel.desired.replicas };
        let status = SentinelStatus {
            placement: self.placement.clone(),
            epoch: Some(epoch),
            sequence,
            subject: SentinelSubject::Id(sentinel.id),
            running_image: Some(sentinel.desired.image.clone()).filter(|_| !is_bad),
            available: replicas,
            ready: replicas,
            health: Health::of(sentinel.desired.replicas, replicas),
        };
        let told = self.store.retry(async || {
            let mut write = self.store.begin().await?;
            write.take_sentinel_reports(std::slice::from_ref(&status)).await?;
            write.commit().await
        });
        told.await.unwrap();
    }

    fn next(&mut self) -> (Epoch, Sequence) {
        self.sequence += 1;
        (self.epoch(), Sequence(self.sequence))
    }

    /// Tells the instances of two places apart.
    fn salt(&self) -> u128 {
        self.placement.to_string().bytes().map(u128::from).sum::<u128>() << 50
    }
}

/// How an image turns out, by its tag.
fn instance(name: &str, image: &str) -> Instance {
    let well =
        Instance { k8s_name: name.parse().unwrap(), uid: Some(name.parse().unwrap()), ..Instance::sample(1) };
    let ill = |reason: &str, restarts: u32| Instance {
        status: Status::Pending,
        ready: false,
        reason: Reason::read(reason),
        message: Some(Message::cut("as it was told to")),
        restarts,
        ..well.clone()
    };
    match image.rsplit(':').next().unwrap() {
        "crash" => ill("CrashLoopBackOff", 3),
        "oom" => ill("OOMKilled", 3),
        "pull" => ill("ErrImagePull", 0),
        "room" => ill("Unschedulable", 0),
        "probe" => ill("Unhealthy", 0),
        "slow" => ill("ContainerCreating", 0),
        _ => well,
    }
}
