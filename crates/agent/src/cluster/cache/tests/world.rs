//! A cluster of a few lines, whose watch and answers come as late as a test wants.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use futures_util::FutureExt as _;
use model::{
    id::{DeploymentId, EnvironmentId, WorkspaceId},
    kind::Kind,
    watch::Key,
};
use proptest::prelude::*;
use serde_json::json;

use super::super::{Cache, Changes, Touched};
use crate::{
    cluster::{Seen, Sight},
    labels::{Belonging, Owner, Subject},
    object::{Live, Ref, Type},
};

const TYPE: Type = Type::ReplicaSet;

/// An object that is made by refinement.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    ty: Type,
    namespace: String,
    name: String,
    uid: String,
    owner: Option<Owner>,
    says: String,
}

impl Object {
    pub fn new(ty: Type, namespace: &str, name: &str) -> Object {
        // As long as a real one.
        let uid = format!("00000000-0000-4000-8000-{name:.12}");
        Object { ty, namespace: namespace.into(), name: name.into(), uid, owner: None, says: String::new() }
    }

    pub fn of(self, deployment: u128) -> Object {
        self.owned(Subject::Deployment(DeploymentId::sample(deployment)), Some("default"))
    }

    pub fn of_environment(self) -> Object {
        self.owned(Subject::Environment, Some("default"))
    }

    pub fn of_namespace(self) -> Object {
        self.owned(Subject::Namespace, None)
    }

    pub fn of_nobody(self) -> Object {
        Object { owner: None, ..self }
    }

    pub fn in_shard(mut self, shard: &str) -> Object {
        self.owner.as_mut().unwrap().shard = Some(shard.parse().unwrap());
        self
    }

    pub fn uid(self, uid: &str) -> Object {
        Object { uid: uid.into(), ..self }
    }

    pub fn saying(self, says: &str) -> Object {
        Object { says: says.into(), ..self }
    }

    pub fn name(&self) -> Ref {
        Ref::new(self.ty, &self.namespace, &self.name)
    }

    /// As the API server shows it.
    pub fn at(&self, revision: u64) -> Live {
        let labels = self.owner.as_ref().map(Owner::labels).unwrap_or_default();
        let object = json!({
            "metadata": {
                "namespace": self.namespace, "name": self.name, "uid": self.uid, "labels": labels,
                "resourceVersion": revision.to_string(),
            },
            "spec": { "says": self.says },
        });
        Live::read(self.ty, object).unwrap()
    }

    fn owned(self, subject: Subject, shard: Option<&str>) -> Object {
        let environment = (subject != Subject::Namespace).then(|| EnvironmentId::sample(1));
        let belonging =
            Belonging { workspace: Some(WorkspaceId::sample(1)), environment, ..Belonging::default() };
        let shard = shard.map(|shard| shard.parse().unwrap());
        Object { owner: Some(Owner { kind: Kind::Deployment, subject, belonging, shard }), ..self }
    }
}

/// What happens next.
#[derive(Debug, Clone)]
pub enum Write {
    /// The object of a name is made, or said to be something else. The answer goes to the cache later.
    Apply {
        name: u8,
        owner: u8,
        says: u8,
    },
    /// It is written without a change that anybody sees.
    Touch {
        name: u8,
    },
    Delete {
        name: u8,
    },
    /// The watch shows so many events.
    Show(u8),
    /// The oldest answer arrives.
    Answer,
    /// The watch starts over, from what there is now.
    Relist,
    /// The same, and it breaks in the middle.
    BrokenList,
    Bookmark,
    /// Somebody looks at what they were told of.
    Look,
}

impl Write {
    pub fn any() -> impl Strategy<Value = Write> {
        let name = 0..4_u8;
        prop_oneof![
            4 => (name.clone(), 0..3_u8, 0..3_u8).prop_map(|(name, owner, says)| Write::Apply { name, owner, says }),
            1 => name.clone().prop_map(|name| Write::Touch { name }),
            2 => name.prop_map(|name| Write::Delete { name }),
            4 => (1..4_u8).prop_map(Write::Show),
            3 => Just(Write::Answer),
            1 => Just(Write::Relist),
            1 => Just(Write::BrokenList),
            1 => Just(Write::Bookmark),
            2 => Just(Write::Look),
        ]
    }
}

/// The cluster, the cache that follows it, and one who reads only what it was told of.
pub struct World {
    revision: u64,
    objects: BTreeMap<Ref, (Object, u64)>,
    /// What the watch has not shown yet.
    events: VecDeque<(u64, Seen)>,
    answers: VecDeque<Live>,
    cache: Cache,
    changes: Changes,
    /// By key, what the reader last saw of it.
    looked_at: BTreeMap<Key, Vec<String>>,
    /// The highest revision that was ever held of each name.
    highest: BTreeMap<Ref, u64>,
}

impl World {
    pub fn new() -> World {
        let cache = Cache::new();
        let changes = cache.changes(Kind::Deployment);
        cache.take(TYPE, Seen::Init);
        cache.take(TYPE, Seen::Reached(0));
        cache.take(TYPE, Seen::InitDone);
        World {
            revision: 0,
            objects: BTreeMap::new(),
            events: VecDeque::new(),
            answers: VecDeque::new(),
            cache,
            changes,
            looked_at: BTreeMap::new(),
            highest: BTreeMap::new(),
        }
    }

    pub fn act(&mut self, write: Write) {
        match write {
            Write::Apply { name, owner, says } => self.apply(name, owner, says),
            Write::Touch { name } => {
                if let Some((object, _)) = self.objects.get(&named(name).name()).cloned() {
                    self.write(object);
                }
            }
            Write::Delete { name } => {
                let object = named(name).name();
                if let Some((gone, _)) = self.objects.remove(&object) {
                    self.revision += 1;
                    let uid = gone.at(self.revision).uid;
                    self.events.push_back((self.revision, Seen::Gone { object, uid }));
                }
            }
            Write::Show(count) => (0..count).for_each(|_| self.show()),
            Write::Answer => {
                if let Some(answer) = self.answers.pop_front() {
                    self.cache.note(answer);
                }
            }
            Write::Relist => self.list(true),
            Write::BrokenList => self.list(false),
            // A bookmark promises no more than what was shown.
            Write::Bookmark => {
                let shown = self.events.front().map_or(self.revision, |(next, _)| next - 1);
                self.cache.take(TYPE, Seen::Reached(shown));
            }
            Write::Look => self.look(),
        }
    }

    fn apply(&mut self, name: u8, owner: u8, says: u8) {
        let uid = match self.objects.get(&named(name).name()) {
            Some((object, _)) => object.uid.clone(),
            None => format!("uid-{}", self.revision),
        };
        let object = named(name).uid(&uid).of(u128::from(owner)).saying(&says.to_string());
        let live = self.write(object);
        self.answers.push_back(live);
    }

    fn write(&mut self, object: Object) -> Live {
        self.revision += 1;
        let live = object.at(self.revision);
        self.objects.insert(object.name(), (object, self.revision));
        self.events.push_back((self.revision, Seen::Changed(live.clone())));
        live
    }

    fn show(&mut self) {
        if let Some((_, event)) = self.events.pop_front() {
            self.cache.take(TYPE, event);
        }
    }

    fn list(&mut self, is_complete: bool) {
        self.cache.take(TYPE, Seen::Init);
        let half = self.objects.len() / 2;
        let count = if is_complete { self.objects.len() } else { half };
        for (object, revision) in self.objects.values().take(count) {
            self.cache.take(TYPE, Seen::Listed(object.at(*revision)));
        }
        if is_complete {
            // An answer may come between the list and its end.
            if let Some(answer) = self.answers.pop_back() {
                self.cache.note(answer);
            }
            self.cache.take(TYPE, Seen::Reached(self.revision));
            self.cache.take(TYPE, Seen::InitDone);
            self.events.clear();
        } else {
            // A watch that breaks there starts over, and nothing of it counts.
            self.list(true);
        }
    }

    fn look(&mut self) {
        for touched in self.changes.next().now_or_never().unwrap_or_default() {
            let Touched::Key(key) = touched else { panic!("nothing here is shared") };
            let seen = self.picture(&key);
            self.looked_at.insert(key, seen);
        }
    }

    fn picture(&self, key: &Key) -> Vec<String> {
        let objects = self.cache.of_key(Kind::Deployment, key);
        objects.iter().map(|live| format!("{} {:?} {:?}", live.object, live.uid, live.json())).collect()
    }

    /// What holds at every moment: no object goes back, and the indexes say what the table says.
    pub fn check_running(&mut self) {
        let mut by_key: BTreeMap<Key, Vec<Ref>> = BTreeMap::new();
        for object in (0..4).map(|name| named(name).name()) {
            let Some(live) = self.cache.get(&object) else { continue };
            let highest = self.highest.entry(object.clone()).or_default();
            assert!(live.revision >= *highest, "{object} went back from {highest} to {}", live.revision);
            *highest = live.revision;
            by_key.entry(live.owner.as_ref().unwrap().key().unwrap()).or_default().push(object);
        }
        assert_eq!(self.cache.keys(Kind::Deployment), by_key.keys().cloned().collect::<BTreeSet<_>>());
        for (key, objects) in by_key {
            let found = self.cache.of_key(Kind::Deployment, &key);
            assert_eq!(found.iter().map(|live| live.object.clone()).collect::<Vec<_>>(), objects);
        }
    }

    pub fn settle(&mut self) {
        while !self.events.is_empty() {
            self.show();
        }
        while let Some(answer) = self.answers.pop_front() {
            self.cache.note(answer);
        }
        self.look();
    }

    pub fn check_settled(&self) {
        let there: Vec<Live> = self.objects.values().map(|(object, revision)| object.at(*revision)).collect();
        assert_eq!(self.cache.count(TYPE), there.len());
        for live in &there {
            assert_eq!(self.cache.get(&live.object).as_deref(), Some(live));
        }
        let sight = |live: &Live| Sight {
            object: live.object.clone(),
            uid: live.uid.clone(),
            revision: live.revision,
        };
        let sights: Vec<Sight> = there.iter().map(sight).collect();
        assert!(self.cache.compare(TYPE, &sights).is_empty());
        for owner in 0..3 {
            let key = Key::new(DeploymentId::sample(owner).to_string());
            let looked_at = self.looked_at.get(&key).cloned().unwrap_or_default();
            assert_eq!(looked_at, self.picture(&key), "the last look at {key}");
        }
    }
}

fn named(name: u8) -> Object {
    Object::new(TYPE, "ws-1", &format!("object-{name}"))
}
