//! Whether everything agrees: what is stored, what is in the clusters, and what was reported of it.
//!
//! It asks the store and the clusters, and nobody's memory.

use std::{collections::BTreeMap, sync::Arc};

use agent::{
    deployment::Deployments,
    kind::Kind,
    labels::Owner,
    network_policy::NetworkPolicies,
    object::{Live, Ref, Scale, Stamped, Stamping, Type, difference},
    sentinel::Sentinels,
};
use model::{
    cluster::Reachability,
    id::DeploymentId,
    instance::Instance,
    name::Placement,
    watch::{Cursor, Key, Picture, Position},
};
use runtime::config::SecretString;
use serde_json::Value;
use store::{Item, Routing, SentinelReport, State, Topic};
use wire::auth::CredentialKeys;

use super::world::{Region, World, agent_config};
use crate::ground::{KEY, SECRET};

/// Everything that does not agree, in words.
pub async fn disagreements(world: &World) -> Vec<String> {
    let picture = match world.store.changes(Cursor::default()).await {
        Ok(picture) => picture,
        Err(error) => return vec![format!("the store cannot be read: {error}")],
    };
    let mut wrong = Vec::new();
    for region in &world.regions {
        let place = &region.names.place;
        let wanted = Wanted::of(world, region, &picture);
        let there = There::in_(region);
        wanted.compare(&there, &mut wrong);
        reports(place, &picture, &there, &mut wrong);
        match world.store.cluster(place).await {
            Ok(cluster) => {
                if cluster.reachability != Reachability::Reachable || !cluster.held_back.is_empty() {
                    wrong.push(format!("{place}: {:?}, {:?}", cluster.reachability, cluster.held_back));
                }
                for counts in cluster.counts.iter().filter(|counts| counts.failing + counts.orphans > 0) {
                    wrong.push(format!("{place}: {counts:?}"));
                }
            }
            Err(error) => wrong.push(format!("{place} is unknown: {error}")),
        }
    }
    wrong
}

/// What the kinds make of what is stored for one place.
struct Wanted {
    objects: BTreeMap<Ref, Stamped>,
    wrong: Vec<String>,
}

impl Wanted {
    fn of(world: &World, region: &Region, picture: &Picture<Topic, State>) -> Wanted {
        let place = &region.names.place;
        let config = agent_config(world.setup, place, "checker");
        let deployments = Deployments { settings: config.workload };
        let control_urls = config.control.into_iter().flat_map(|control| control.urls).collect();
        let sentinels = Sentinels { settings: config.sentinel, control_urls };
        let keys = vec![(KEY.parse().expect("a label"), SecretString::new(SECRET))];
        let keys = CredentialKeys::parse(keys).expect("a key");
        let mut wanted = Wanted { objects: BTreeMap::new(), wrong: Vec::new() };
        for item in picture.items.iter().filter(|item| !item.gone) {
            match (&item.topic, &item.state) {
                (Topic::Deployments(at), State::Deployment(workload)) if at == place => {
                    let desired =
                        wire::deployment::Desired::Run { workload: workload.clone(), change: item.change };
                    wanted.add(&deployments, &desired, item, picture.position, place);
                }
                (Topic::Sentinels(at), State::Sentinel(sentinel)) if at == place => {
                    let of = &sentinel.desired;
                    let (id, environment) = (sentinel.id, sentinel.environment);
                    let credentials = keys.credentials(id, environment, &of.key, of.credential, of.gossip);
                    let credentials = Arc::new(credentials.expect("the key is known"));
                    let (sentinel, change) = (sentinel.clone(), item.change);
                    let desired = wire::sentinel::Desired::Run { sentinel, credentials, change };
                    wanted.add(&sentinels, &desired, item, picture.position, place);
                }
                (Topic::NetworkPolicies(at), State::NetworkPolicy(policy)) if at == place => {
                    let (policy, change) = (policy.clone(), item.change);
                    let desired = wire::network_policy::Desired::Apply { policy, change };
                    wanted.add(&NetworkPolicies, &desired, item, picture.position, place);
                }
                _ => {}
            }
        }
        wanted
    }

    fn add<K: Kind>(
        &mut self,
        kind: &K,
        desired: &K::Desired,
        item: &Item,
        position: Position,
        place: &Placement,
    ) {
        let stamping = Stamping {
            history: position.history,
            region: place.region.clone(),
            version: item.version,
            change: item.change,
        };
        match kind.manifests(desired, None) {
            Ok(manifests) => {
                for stamped in manifests.into_iter().map(|manifest| manifest.stamped(&stamping)) {
                    self.objects.insert(stamped.object.clone(), stamped);
                }
            }
            Err(problems) => self.wrong.push(format!("{}: {problems}", item.key)),
        }
    }

    fn compare(mut self, there: &There, wrong: &mut Vec<String>) {
        wrong.append(&mut self.wrong);
        for (object, stamped) in &self.objects {
            if let Some(problem) = there.problem(stamped) {
                wrong.push(format!("{object}: {problem}"));
            }
        }
        for (object, (live, _)) in &there.objects {
            // A namespace and what it has once stay; pods and what controllers make are theirs.
            let is_ours = !matches!(object.ty, Type::Namespace | Type::ServiceAccount | Type::Pod);
            if is_ours && live.owner.is_some() && !self.objects.contains_key(object) {
                wrong.push(format!("{object}: nobody wants it"));
            }
            if object.ty == Type::Pod {
                let is_wanted = live.owner.as_ref().and_then(Owner::key).is_some_and(|key| {
                    let mut owners = self.objects.values().filter_map(|stamped| stamped.owner.key());
                    owners.any(|owner| owner == key)
                });
                if !is_wanted {
                    wrong.push(format!("{object}: nobody wants it"));
                }
            }
        }
    }
}

/// What is in one cluster.
struct There {
    objects: BTreeMap<Ref, (Arc<Live>, Arc<Value>)>,
}

impl There {
    fn in_(region: &Region) -> There {
        let all = region.stage.all().into_iter();
        let ours =
            all.filter(|(_, json)| json["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "krane");
        let read = ours.map(|(object, json)| {
            let live = Live::read(object.ty, (*json).clone()).expect("the cluster has whole objects");
            (object, (Arc::new(live), json))
        });
        There { objects: read.collect() }
    }

    fn problem(&self, stamped: &Stamped) -> Option<String> {
        let Some((live, json)) = self.objects.get(&stamped.object) else {
            return Some("is not there".to_owned());
        };
        if live.is_deleting {
            return Some("is being deleted".to_owned());
        }
        let mut stamped = stamped.clone();
        if let Some(owner) = stamped.owned_by.clone() {
            match self.objects.get(&owner) {
                Some((owner, _)) => stamped.go_with(&owner.uid),
                None => return Some(format!("belongs to {owner}, which is not there")),
            }
        }
        if live.stamp.spec_hash.as_deref() != Some(&stamped.spec_hash) {
            return Some("was made of something else".to_owned());
        }
        if let Some(path) = live.json().and_then(|live| difference(&stamped.body, &live)) {
            return Some(format!("differs in {path}"));
        }
        let replicas = json["spec"]["replicas"].as_u64().unwrap_or(1);
        let is_scaled = match stamped.scale {
            Some(Scale::Exactly(exactly)) => replicas == u64::from(exactly),
            Some(Scale::AtLeast(least)) => replicas >= u64::from(least),
            None => true,
        };
        let pods = self.pods(&stamped.object, json);
        match (is_scaled, stamped.object.ty) {
            (false, _) => Some(format!("has {replicas} replicas and not {:?}", stamped.scale)),
            (true, Type::ReplicaSet) if pods != replicas => {
                Some(format!("has {pods} pods and not {replicas}"))
            }
            _ => None,
        }
    }

    /// How many pods a set of replicas has, those on their way out among them, and none that has ended.
    fn pods(&self, set: &Ref, json: &Value) -> u64 {
        let uid = &json["metadata"]["uid"];
        let is_of = |(object, (_, json)): &(&Ref, &(Arc<Live>, Arc<Value>))| {
            let mut owners = json["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let has_ended = ["Failed", "Succeeded"].iter().any(|phase| json["status"]["phase"] == **phase);
            object.ty == Type::Pod
                && object.namespace == set.namespace
                && !has_ended
                && owners.any(|owner| owner["uid"] == *uid)
        };
        self.objects.iter().filter(is_of).count() as u64
    }

    /// The objects of one thing, as a loop would be shown them.
    fn of_key(&self, key: &Key) -> Vec<Arc<Live>> {
        let all = self.objects.values().map(|(live, _)| live);
        let is_of = |live: &&Arc<Live>| live.owner.as_ref().and_then(Owner::key).as_ref() == Some(key);
        all.filter(is_of).cloned().collect()
    }
}

/// What was reported against what there is to report.
fn reports(place: &Placement, picture: &Picture<Topic, State>, there: &There, wrong: &mut Vec<String>) {
    for item in &picture.items {
        match &item.state {
            State::Routing(routing) if routing.placement == *place => {
                wrong.extend(routed(routing, item.gone, there));
            }
            State::SentinelReport(report) if report.placement == *place && !item.gone => {
                wrong.extend(seen(report, there));
            }
            State::NetworkPolicyReport(report) if report.placement == *place && !item.gone => {
                if let Some(error) = &report.apply_error {
                    wrong.push(format!("{}: {error:?}", report.id));
                }
            }
            _ => {}
        }
    }
}

fn routed(routing: &Routing, is_gone: bool, there: &There) -> Option<String> {
    let id: DeploymentId = routing.deployment;
    if let Some(error) = routing.apply_error.as_ref().filter(|_| !is_gone) {
        return Some(format!("{id}: {error:?}"));
    }
    let objects = there.of_key(&wire::deployment::key(id));
    let observed: Vec<Instance> = agent::deployment::observe::observe(&objects).unwrap_or_default();
    let mut stored = routing.instances.clone();
    stored.sort_unstable_by(|one, other| one.k8s_name.cmp(&other.k8s_name));
    let place = &routing.placement;
    (stored != observed).then(|| format!("{id} in {place}: {observed:?} runs, and {stored:?} is known"))
}

fn seen(report: &SentinelReport, there: &There) -> Option<String> {
    let SentinelReport { id, observed, .. } = report;
    if let Some(error) = &observed.apply_error {
        return Some(format!("{id}: {error:?}"));
    }
    let objects = there.of_key(&wire::sentinel::key(*id));
    let Some(seen) = agent::sentinel::observe::observe(&objects) else {
        return Some(format!("{id}: nothing of it is there"));
    };
    let is_so = (seen.available, seen.ready, seen.health, &seen.running_image)
        == (observed.available, observed.ready, observed.health, &observed.running_image);
    (!is_so).then(|| format!("{id}: {seen:?}, and {observed:?} is known"))
}
