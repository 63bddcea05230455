//! Stands in for the local cluster until that is there.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use agent::{
    cluster::{Cluster, Error, Fault, Lease, Manager, Result, Seen, Sight},
    object::{Live, Ref, Type, Uid},
};
use futures_util::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use model::name::Line;
use runtime::{clock::Clock, shutdown::Tasks};
use serde_json::{Value, json};
use tokio::sync::watch;

#[derive(Clone)]
pub struct Toy(Arc<Inner>);
struct Inner {
    state: Mutex<State>,
    bell: watch::Sender<u64>,
    clock: Clock,
    tasks: Tasks,
    uid: String,
}
#[derive(Default)]
struct State {
    revision: u64,
    next_uid: u64,
    objects: BTreeMap<Ref, Value>,
    log: BTreeMap<Type, Vec<Seen>>,
    leases: BTreeMap<String, Lease>,
}

impl Toy {
    pub fn new(clock: Clock, tasks: Tasks, uid: String) -> Toy {
        Toy(Arc::new(Inner { state: Mutex::default(), bell: watch::Sender::new(0), clock, tasks, uid }))
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }
    pub fn all(&self) -> Vec<(Ref, Value)> {
        self.state().objects.iter().map(|(r, v)| (r.clone(), v.clone())).collect()
    }
    pub fn edit(&self, object: &Ref, change: impl FnOnce(&mut Value)) -> bool {
        let mut s = self.state();
        let Some(mut v) = s.objects.get(object).cloned() else { return false };
        change(&mut v);
        self.put(&mut s, object, v);
        self.reconcile(&mut s, object);
        true
    }
    pub fn remove(&self, object: &Ref) {
        let mut s = self.state();
        self.drop_one(&mut s, object);
    }
    fn put(&self, s: &mut State, object: &Ref, mut v: Value) {
        s.revision += 1;
        v["metadata"]["resourceVersion"] = s.revision.to_string().into();
        if v["metadata"]["uid"].is_null() {
            s.next_uid += 1;
            v["metadata"]["uid"] = format!("{}-{:04}", self.0.uid, s.next_uid).into();
        }
        s.objects.insert(object.clone(), v.clone());
        if v["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "krane" {
            let live = Live::read(object.ty, v).unwrap();
            s.log.entry(object.ty).or_default().push(Seen::Changed(live));
        }
        self.0.bell.send_modify(|b| *b += 1);
    }
    fn drop_one(&self, s: &mut State, object: &Ref) {
        let Some(v) = s.objects.remove(object) else { return };
        s.revision += 1;
        let uid = v["metadata"]["uid"].as_str().unwrap().to_owned();
        s.log
            .entry(object.ty)
            .or_default()
            .push(Seen::Gone { object: object.clone(), uid: Uid(uid.as_str().into()) });
        self.0.bell.send_modify(|b| *b += 1);
        let owned: Vec<Ref> = s
            .objects
            .iter()
            .filter(|(_, o)| {
                o["metadata"]["ownerReferences"]
                    .as_array()
                    .is_some_and(|a| a.iter().any(|r| r["uid"] == uid.as_str()))
            })
            .map(|(r, _)| r.clone())
            .collect();
        for o in owned {
            self.drop_one(s, &o);
        }
        if object.ty == Type::Pod {
            let owner = v["metadata"]["ownerReferences"][0].clone();
            let rs = Ref::new(Type::ReplicaSet, &object.namespace, owner["name"].as_str().unwrap());
            self.reconcile(s, &rs);
        }
    }
    fn reconcile(&self, s: &mut State, object: &Ref) {
        let Some(v) = s.objects.get(object).cloned() else { return };
        match object.ty {
            Type::ReplicaSet => {
                let want = v["spec"]["replicas"].as_u64().unwrap_or(1) as usize;
                let uid = v["metadata"]["uid"].clone();
                let pods: Vec<Ref> = s
                    .objects
                    .iter()
                    .filter(|(r, o)| r.ty == Type::Pod && o["metadata"]["ownerReferences"][0]["uid"] == uid)
                    .map(|(r, _)| r.clone())
                    .collect();
                for pod in pods.iter().skip(want) {
                    let o = s.objects.remove(pod).unwrap();
                    s.revision += 1;
                    let uid = o["metadata"]["uid"].as_str().unwrap().into();
                    s.log
                        .entry(Type::Pod)
                        .or_default()
                        .push(Seen::Gone { object: pod.clone(), uid: Uid(uid) });
                    self.0.bell.send_modify(|b| *b += 1);
                }
                for _ in pods.len()..want {
                    s.next_uid += 1;
                    let name = format!("{}-{:05}", object.name, s.next_uid);
                    let pod = Ref::new(Type::Pod, &object.namespace, &name);
                    let mut o = json!({"metadata": v["spec"]["template"]["metadata"], "spec": v["spec"]["template"]["spec"], "status": {"phase": "Pending"}});
                    o["metadata"]["name"] = name.into();
                    o["metadata"]["namespace"] = (&*object.namespace).into();
                    o["metadata"]["ownerReferences"] = json!([{"kind": "ReplicaSet", "name": &*object.name, "uid": uid, "controller": true}]);
                    self.put(s, &pod, o);
                    let (me, clock) = (self.clone(), self.0.clock.clone());
                    let ip = format!("10.1.{}.{}", s.next_uid / 250, s.next_uid % 250 + 1);
                    self.0.tasks.spawn_one_of_many("pod", async move {
                        clock.sleep(Duration::from_millis(700)).await;
                        me.edit(&pod, |o| o["status"] = json!({"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]}));
                    });
                }
            }
            Type::Deployment => {
                let want = v["spec"]["replicas"].as_u64().unwrap_or(1);
                let generation = v["metadata"]["generation"].as_u64().unwrap_or(1);
                let status = json!({"observedGeneration": generation, "updatedReplicas": want, "availableReplicas": want, "readyReplicas": want, "replicas": want});
                if v["status"] != status {
                    let mut v = v;
                    v["status"] = status;
                    self.put(s, object, v);
                }
            }
            _ => {}
        }
    }
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (k, v) in from {
                merge(into.entry(k.clone()).or_insert(Value::Null), v);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

impl Cluster for Toy {
    fn uid(&self) -> BoxFuture<'_, Result<Line>> {
        async move { Ok(self.0.uid.parse().unwrap()) }.boxed()
    }
    fn watch(&self, ty: Type) -> BoxStream<'static, Result<Seen>> {
        let s = self.state();
        let mut ready: std::collections::VecDeque<Seen> = [Seen::Init].into();
        for (_, v) in s
            .objects
            .iter()
            .filter(|(r, v)| r.ty == ty && v["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "krane")
        {
            ready.push_back(Seen::Listed(Live::read(ty, v.clone()).unwrap()));
        }
        ready.extend([Seen::Reached(s.revision), Seen::InitDone]);
        let at = s.log.get(&ty).map_or(0, Vec::len);
        let bell = self.0.bell.subscribe();
        let me = self.clone();
        drop(s);
        stream::unfold((me, ready, at, bell), move |(me, mut ready, mut at, mut bell)| async move {
            loop {
                if let Some(seen) = ready.pop_front() {
                    return Some((Ok(seen), (me, ready, at, bell)));
                }
                {
                    let s = me.state();
                    if let Some(log) = s.log.get(&ty) {
                        ready.extend(log[at..].iter().cloned());
                        at = log.len();
                    }
                }
                if ready.is_empty() {
                    bell.changed().await.unwrap();
                }
            }
        })
        .boxed()
    }
    fn apply<'a>(
        &'a self,
        manager: Manager,
        object: &'a Ref,
        body: &'a Value,
    ) -> BoxFuture<'a, Result<Live>> {
        async move {
            let mut s = self.state();
            let mut v = s.objects.get(object).cloned().unwrap_or_else(|| json!({"metadata": {}}));
            let before = v.clone();
            merge(&mut v, body);
            let entry = json!({"manager": manager.as_str()});
            let managers = v["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
            if !managers.contains(&entry) {
                let mut managers = managers;
                managers.push(entry);
                v["metadata"]["managedFields"] = managers.into();
            }
            if object.ty == Type::Deployment && before["spec"] != v["spec"] {
                let generation = v["metadata"]["generation"].as_u64().unwrap_or(0) + 1;
                v["metadata"]["generation"] = generation.into();
            }
            if v != before {
                self.put(&mut s, object, v);
                self.reconcile(&mut s, object);
            }
            Ok(Live::read(object.ty, s.objects[object].clone()).unwrap())
        }
        .boxed()
    }
    fn delete<'a>(&'a self, object: &'a Ref, uid: &'a Uid) -> BoxFuture<'a, Result<()>> {
        async move {
            let mut s = self.state();
            let Some(v) = s.objects.get(object) else { return Ok(()) };
            if v["metadata"]["uid"] != *uid.0 {
                return Err(Error::new(Fault::Conflict, "another uid"));
            }
            self.drop_one(&mut s, object);
            Ok(())
        }
        .boxed()
    }
    fn list(&self, _ty: Type) -> BoxFuture<'_, Result<Vec<Sight>>> {
        async move { Ok(Vec::new()) }.boxed()
    }
    fn leases<'a>(&'a self, _namespace: &'a str) -> BoxFuture<'a, Result<Vec<Lease>>> {
        async move { Ok(self.state().leases.values().cloned().collect()) }.boxed()
    }
    fn put_lease<'a>(&'a self, _namespace: &'a str, lease: &'a Lease) -> BoxFuture<'a, Result<Lease>> {
        async move {
            let mut s = self.state();
            let held = s.leases.get(&lease.name).and_then(|l| l.revision.clone());
            if held != lease.revision {
                return Err(Error::new(Fault::Conflict, "written since"));
            }
            s.revision += 1;
            let lease = Lease { revision: Some(s.revision.to_string()), ..lease.clone() };
            s.leases.insert(lease.name.clone(), lease.clone());
            Ok(lease)
        }
        .boxed()
    }
}
