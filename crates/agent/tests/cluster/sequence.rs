//! Sequences of what may happen to a few objects, drawn from a seed and written down as they went: whatever plays them, the
//! record must be the same.

use std::{collections::BTreeMap, fmt::Write as _};

use agent::{
    cluster::{Cluster, Lease, Manager, Seen},
    labels::Owner,
    object::{Live, Ref, Type, Uid},
};
use futures_util::StreamExt as _;
use model::name::Shard;
use runtime::random::Random;
use serde_json::{Value, json};

use crate::suite::{Setting, Shown, soon};

/// Operations in one sequence.
const LENGTH: usize = 14;
const HELD: &str = "testing.krane/held";
/// The types that take part. A Secret is data, a Service has a list that is merged, a `ReplicaSet` two managers.
const TYPES: [Type; 4] = [Type::Secret, Type::Service, Type::ReplicaSet, Type::PodDisruptionBudget];

/// What may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Scale,
    Edit,
    Delete,
    DeleteAnother,
    Remove,
    List,
    Watch,
    PutLease,
    PutOldLease,
}

impl Operation {
    pub const ALL: [Operation; 10] = [
        Operation::Apply,
        Operation::Scale,
        Operation::Edit,
        Operation::Delete,
        Operation::DeleteAnother,
        Operation::Remove,
        Operation::List,
        Operation::Watch,
        Operation::PutLease,
        Operation::PutOldLease,
    ];
}

/// What became of a sequence.
pub struct Record {
    pub lines: Vec<String>,
    pub operations: BTreeMap<Operation, u32>,
    /// How often an operation was not done as asked.
    pub faults: u32,
}

struct Player<'a, S: Setting> {
    setting: &'a S,
    cluster: &'a S::Cluster,
    shard: Shard,
    seed: u64,
    random: Random,
    record: Record,
    /// The uids that each object has had, in the order in which they were seen.
    uids: BTreeMap<Ref, Vec<Uid>>,
    watches: Vec<Watching>,
    lease: Option<Lease>,
    old_lease: Option<Lease>,
}

struct Watching {
    ty: Type,
    nth: usize,
    shown: Shown,
    /// What was last shown of each object.
    last: BTreeMap<Ref, String>,
}

/// Plays the sequence of a seed, in a shard of its own.
pub async fn play<S: Setting>(setting: &S, cluster: &S::Cluster, shard: Shard, seed: u64) -> Record {
    let record = Record { lines: Vec::new(), operations: BTreeMap::new(), faults: 0 };
    let mut player = Player {
        setting,
        cluster,
        shard,
        seed,
        random: Random::seeded(seed),
        record,
        uids: BTreeMap::new(),
        watches: Vec::new(),
        lease: None,
        old_lease: None,
    };
    for ty in TYPES {
        player.watch(ty).await;
        player.apply(ty).await;
    }
    for _ in 0..LENGTH {
        player.operate().await;
    }
    player.finish().await;
    player.record
}

impl<S: Setting> Player<'_, S> {
    fn draw(&self, bound: u64) -> usize {
        usize::try_from(self.random.below(bound)).unwrap()
    }

    fn chance(&self, of: u64) -> bool {
        self.random.below(of) == 0
    }

    fn say(&mut self, line: String) {
        self.record.lines.push(line);
    }

    fn object(&self, ty: Type) -> Ref {
        Ref::new(ty, &self.setting.namespace(), &format!("seq-{}", self.seed))
    }

    async fn operate(&mut self) {
        // Most of it is writing: there is nothing to list or to delete otherwise.
        let weights = [6, 3, 6, 2, 1, 1, 1, 1, 1, 1];
        let mut nth = self.draw(weights.iter().sum());
        let mut chosen = Operation::Apply;
        for (operation, weight) in Operation::ALL.into_iter().zip(weights) {
            chosen = operation;
            let weight = usize::try_from(weight).unwrap();
            if nth < weight {
                break;
            }
            nth -= weight;
        }
        *self.record.operations.entry(chosen).or_default() += 1;
        let ty = TYPES[self.draw(TYPES.len() as u64)];
        match chosen {
            Operation::Apply => self.apply(ty).await,
            Operation::Scale => self.scale().await,
            Operation::Edit => self.edit(ty).await,
            Operation::Delete => self.delete(ty, false).await,
            Operation::DeleteAnother => self.delete(ty, true).await,
            Operation::Remove => self.remove(ty).await,
            Operation::List => self.list(ty).await,
            Operation::Watch => self.watch(ty).await,
            Operation::PutLease => self.put_lease(false).await,
            Operation::PutOldLease => self.put_lease(true).await,
        }
    }

    async fn apply(&mut self, ty: Type) {
        let object = self.object(ty);
        let body = self.body(ty);
        let applied = self.cluster.apply(Manager::Krane, &object, &body).await;
        self.answer(&format!("apply {}", ty.kind()), applied);
    }

    async fn scale(&mut self) {
        let object = self.object(Type::ReplicaSet);
        let body = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": { "namespace": &*object.namespace, "name": &*object.name },
            "spec": { "replicas": self.draw(3) },
        });
        let applied = self.cluster.apply(Manager::Scale, &object, &body).await;
        self.answer("scale", applied);
    }

    fn answer(&mut self, what: &str, answer: agent::cluster::Result<Live>) {
        match answer {
            Ok(live) => {
                let shown = self.show(&live);
                self.say(format!("{what}: {shown}"));
            }
            Err(error) => {
                self.record.faults += 1;
                self.say(format!("{what}: {}", error.fault));
            }
        }
    }

    async fn edit(&mut self, ty: Type) {
        let object = self.object(ty);
        let edits = edits(ty);
        let edit = edits[self.draw(edits.len() as u64)].clone();
        let edited = self.setting.edit(&object, std::slice::from_ref(&edit)).await;
        self.settle(&object).await;
        let became = match edited {
            Ok(value) => content(ty, &value).to_string(),
            Err(error) => {
                self.record.faults += 1;
                error.fault.to_string()
            }
        };
        self.say(format!("edit {} {edit}: {became}", ty.kind()));
    }

    async fn delete(&mut self, ty: Type, is_another: bool) {
        let object = self.object(ty);
        let another = Uid("00000000-0000-4000-8000-000000000000".into());
        let last = self.uids.get(&object).and_then(|uids| uids.last().cloned());
        let uid = last.filter(|_| !is_another).unwrap_or(another);
        let deleted = self.cluster.delete(&object, &uid).await;
        self.settle(&object).await;
        self.say(format!("delete {}: {:?}", ty.kind(), deleted.map_err(|error| error.fault)));
    }

    async fn remove(&mut self, ty: Type) {
        let object = self.object(ty);
        if self.setting.get(&object).await.is_some() {
            self.setting.remove(&object).await;
            self.settle(&object).await;
        }
        self.say(format!("remove {}", ty.kind()));
    }

    /// What is deleted takes a moment to go; then it is gone, or held by somebody else alone.
    async fn settle(&self, object: &Ref) {
        let is_going = |value: &Value| {
            let about = &value["metadata"];
            !about["deletionTimestamp"].is_null() && about["finalizers"] != json!([HELD])
        };
        soon(async {
            while self.setting.get(object).await.is_some_and(|value| is_going(&value)) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    async fn list(&mut self, ty: Type) {
        let mut line = format!("list {}:", ty.kind());
        for sight in self.cluster.list(ty).await.unwrap() {
            let nth = self.nth(&sight.object, &sight.uid);
            let _ = write!(line, " {}#{nth}", sight.object.name);
        }
        self.say(line);
    }

    async fn watch(&mut self, ty: Type) {
        let mut shown = self.cluster.watch(ty);
        let mut last = BTreeMap::new();
        let mut line = format!("watch {}:", ty.kind());
        loop {
            match soon(shown.next()).await.unwrap().unwrap() {
                Seen::InitDone => break,
                Seen::Listed(live) => {
                    let shown = self.show(&live);
                    let _ = write!(line, " {shown}");
                    last.insert(live.object, shown);
                }
                Seen::Init | Seen::Reached(_) | Seen::Changed(_) | Seen::Gone { .. } => {}
            }
        }
        self.say(line);
        let nth = self.watches.len();
        self.watches.push(Watching { ty, nth, shown, last });
    }

    async fn put_lease(&mut self, is_old: bool) {
        let namespace = self.setting.own_namespace();
        let name = format!("seq-{}", self.seed);
        let base = if is_old { self.old_lease.clone() } else { self.lease.clone() };
        let base = base.unwrap_or(Lease { name, ..Lease::default() });
        let holder = Some(format!("holder-{}", self.draw(3)));
        let lease = Lease { holder, transitions: base.transitions + 1, ..base };
        let line = match self.cluster.put_lease(&namespace, &lease).await {
            Ok(kept) => {
                self.old_lease = self.lease.replace(kept.clone());
                format!("lease: {:?} {}", kept.holder, kept.transitions)
            }
            Err(error) => {
                self.record.faults += 1;
                format!("lease: {}", error.fault)
            }
        };
        self.say(line);
    }

    /// Makes one more of each type, and writes down what every watch showed before it.
    async fn finish(&mut self) {
        for ty in TYPES {
            let object = Ref::new(ty, &self.setting.namespace(), &format!("end-{}", self.seed));
            let mut body = self.plain(ty);
            body["metadata"]["name"] = (*object.name).into();
            self.cluster.apply(Manager::Krane, &object, &body).await.unwrap();
        }
        for Watching { ty, nth, mut shown, mut last } in std::mem::take(&mut self.watches) {
            loop {
                match soon(shown.next()).await.unwrap().unwrap() {
                    Seen::Changed(live) if live.object.name.starts_with("end-") => break,
                    // A controller that only tells how an object is changes nothing of it.
                    Seen::Changed(live) => {
                        let line = self.show(&live);
                        if last.insert(live.object.clone(), line.clone()).as_ref() != Some(&line) {
                            self.say(format!("watch {nth} of {}: {line}", ty.kind()));
                        }
                    }
                    Seen::Gone { object, uid } => {
                        let which = self.nth(&object, &uid);
                        last.remove(&object);
                        self.say(format!("watch {nth} of {}: gone #{which}", ty.kind()));
                    }
                    Seen::Reached(_) => {}
                    seen @ (Seen::Init | Seen::Listed(_) | Seen::InitDone) => panic!("{seen:?}"),
                }
            }
        }
    }

    fn nth(&mut self, object: &Ref, uid: &Uid) -> usize {
        let uids = self.uids.entry(object.clone()).or_default();
        uids.iter().position(|known| known == uid).unwrap_or_else(|| {
            uids.push(uid.clone());
            uids.len() - 1
        })
    }

    fn show(&mut self, live: &Live) -> String {
        let nth = self.nth(&live.object, &live.uid);
        let flags = (live.is_deleting, live.is_scaled_by_us, live.owner.is_some());
        format!("#{nth} {flags:?} {}", content(live.object.ty, &live.json().unwrap()))
    }

    fn labels(&self) -> BTreeMap<&'static str, String> {
        Owner { shard: Some(self.shard.clone()), ..self.setting.owner() }.labels()
    }

    /// An object of ours with nothing but what it must have.
    fn plain(&self, ty: Type) -> Value {
        let object = self.object(ty);
        // No two sequences look after the same pods.
        let own = json!({ "sequence": format!("{}-{}", self.shard, self.seed) });
        let mut body = json!({
            "apiVersion": ty.api_version(), "kind": ty.kind(),
            "metadata": { "namespace": &*object.namespace, "name": &*object.name, "labels": self.labels() },
        });
        match ty {
            Type::Secret => body["data"] = json!({ "a": "MQ==" }),
            Type::Service => {
                body["spec"] = json!({ "type": "ClusterIP", "selector": own, "ports": [port("http", 80)] });
            }
            Type::PodDisruptionBudget => {
                body["spec"] = json!({ "maxUnavailable": 1, "selector": { "matchLabels": own } });
            }
            _ => {
                let container = json!({ "name": "deployment", "image": "fake.local/run:1" });
                body["spec"] = json!({
                    "selector": { "matchLabels": own },
                    "template": { "metadata": { "labels": own }, "spec": { "containers": [container] } },
                });
            }
        }
        body
    }

    /// The same with some of what it may have, and now and then with what it may not.
    fn body(&self, ty: Type) -> Value {
        let mut body = self.plain(ty);
        for key in ["first", "second"] {
            if self.chance(2) {
                body["metadata"]["annotations"][key] = self.draw(2).to_string().into();
            }
        }
        if self.chance(20) {
            body["spec"]["surprise"] = json!(true);
        }
        match ty {
            Type::Secret => {
                if self.chance(2) {
                    body["data"]["b"] = ["Mg==", "Mw=="][self.draw(2)].into();
                }
                if self.chance(10) {
                    body["type"] = "example.com/other".into();
                }
            }
            Type::Service => {
                let more = [port("more", 81), port("more", 82), port("http", 81)];
                if self.chance(2) {
                    let one = more[self.draw(3)].clone();
                    body["spec"]["ports"].as_array_mut().unwrap().push(one);
                }
                if self.chance(4) {
                    body["spec"]["selector"]["more"] = "1".into();
                }
            }
            Type::PodDisruptionBudget => {
                body["spec"]["maxUnavailable"] = self.draw(3).into();
                if self.chance(8) {
                    body["spec"]["minAvailable"] = 1.into();
                }
            }
            _ => self.vary_set(&mut body["spec"]),
        }
        body
    }

    fn vary_set(&self, spec: &mut Value) {
        if self.chance(5) {
            spec["replicas"] = self.draw(3).into();
        }
        if self.chance(12) {
            spec["selector"]["matchLabels"]["more"] = "1".into();
            spec["template"]["metadata"]["labels"]["more"] = "1".into();
        }
        let container = &mut spec["template"]["spec"]["containers"][0];
        let names = ["A", "B", "C"].into_iter().filter(|_| self.chance(2));
        let env: Vec<Value> =
            names.map(|name| json!({ "name": name, "value": format!("v{}", self.draw(2)) })).collect();
        if !env.is_empty() {
            container["env"] = env.into();
        }
        if self.chance(2) {
            container["command"] = json!(["run", format!("{}", self.draw(3))]);
        }
        if self.chance(3) {
            container["ports"] = json!([{ "containerPort": 8080 + self.draw(2), "name": "http" }]);
        }
        if self.chance(3) {
            let probe =
                json!({ "httpGet": { "path": "/", "port": 8080 }, "periodSeconds": 1 + self.draw(2) });
            container["readinessProbe"] = probe;
        }
        if self.chance(4) {
            spec["template"]["spec"]["terminationGracePeriodSeconds"] = (1 + self.draw(2)).into();
        }
    }
}

fn port(name: &str, port: u16) -> Value {
    json!({ "name": name, "port": port, "protocol": "TCP" })
}

/// What a stranger may do to an object of a type.
fn edits(ty: Type) -> Vec<Value> {
    let set = |path: &str, value: Value| json!({ "op": "add", "path": path, "value": value });
    let unset = |path: &str| json!({ "op": "remove", "path": path });
    let mut edits = vec![
        set("/metadata/labels/theirs", json!("1")),
        unset("/metadata/labels/theirs"),
        unset("/metadata/labels/app.kubernetes.io~1component"),
        set("/metadata/labels/unkey.com~1shard", json!("elsewhere")),
        set("/metadata/annotations", json!({ "first": "theirs", "theirs": "1" })),
        unset("/metadata/annotations"),
        set("/metadata/finalizers", json!([HELD])),
        unset("/metadata/finalizers"),
    ];
    let container = "/spec/template/spec/containers/0";
    match ty {
        Type::Secret => edits.extend([
            set("/data/a", json!("NA==")),
            unset("/data"),
            set("/data/theirs", json!("NQ==")),
            set("/data/a", json!("no base64!")),
            set("/type", json!("theirs")),
        ]),
        Type::Service => edits.extend([
            set("/spec/ports/-", port("theirs", 90)),
            set("/spec/ports/0/port", json!(8080)),
            unset("/spec/ports/1"),
            set("/spec/ports/0/targetPort", json!("named")),
            set("/spec/selector/theirs", json!("1")),
            set("/spec/sessionAffinity", json!("ClientIP")),
        ]),
        Type::PodDisruptionBudget => edits.extend([
            set("/spec/maxUnavailable", json!("50%")),
            unset("/spec/maxUnavailable"),
            set("/spec/unhealthyPodEvictionPolicy", json!("AlwaysAllow")),
        ]),
        _ => edits.extend([
            set("/spec/replicas", json!(2)),
            set("/spec/replicas", json!(-1)),
            unset("/spec/replicas"),
            set("/spec/selector/matchLabels/theirs", json!("1")),
            set(
                &format!("{container}/env"),
                json!([{ "name": "A", "value": "theirs" }, { "name": "T", "value": "1" }]),
            ),
            unset(&format!("{container}/env")),
            set(&format!("{container}/command"), json!(["theirs"])),
            unset(&format!("{container}/command")),
            set(&format!("{container}/image"), json!("fake.local/never-ready:1")),
            set(&format!("{container}/ports"), json!([{ "containerPort": 9090, "name": "http" }])),
            unset(&format!("{container}/readinessProbe")),
            set("/spec/template/spec/terminationGracePeriodSeconds", json!(7)),
            set("/spec/template/spec/containers/-", json!({ "name": "theirs", "image": "fake.local/run:1" })),
        ]),
    }
    edits
}

/// What our manifests set of an object, in the order of the keys where a list is merged.
fn content(ty: Type, object: &Value) -> Value {
    let about = &object["metadata"];
    let spec = &object["spec"];
    let mut content = json!({ "finalizers": about["finalizers"], "annotations": about["annotations"] });
    let labels = about["labels"].as_object().into_iter().flatten();
    content["labels"] = labels
        .filter(|(key, _)| *key != "unkey.com/shard")
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    match ty {
        Type::Secret => content["data"] = json!([object["data"], object["type"]]),
        Type::Service => {
            content["spec"] = json!([
                spec["type"],
                of_ours(&spec["selector"]),
                sorted(&spec["ports"]),
                spec["sessionAffinity"]
            ]);
        }
        Type::PodDisruptionBudget => {
            content["spec"] =
                json!([spec["maxUnavailable"], spec["minAvailable"], spec["unhealthyPodEvictionPolicy"]]);
        }
        _ => {
            let pod = &spec["template"]["spec"];
            let container = |one: &Value| {
                json!([
                    one["name"],
                    one["image"],
                    one["command"],
                    sorted(&one["env"]),
                    sorted(&one["ports"]),
                    one["readinessProbe"],
                ])
            };
            let containers: Vec<Value> =
                pod["containers"].as_array().into_iter().flatten().map(container).collect();
            content["spec"] =
                json!([spec["replicas"], sorted(&containers.into()), pod["terminationGracePeriodSeconds"]]);
        }
    }
    content
}

/// A selector without what tells one run from another.
fn of_ours(selector: &Value) -> Value {
    let terms = selector.as_object().into_iter().flatten().filter(|(key, _)| *key != "sequence");
    terms.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn sorted(list: &Value) -> Value {
    let mut list: Vec<String> = list.as_array().into_iter().flatten().map(Value::to_string).collect();
    list.sort();
    list.into()
}
