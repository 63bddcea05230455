//! What the API server does to an object: apply, edit, make and delete, with everything that it gives, keeps and refuses.
//!
//! ```text
//! body ──▶ schema ──▶ managers: merge, prune ──▶ defaults ──▶ check ──▶ store ──▶ put, or removed at last
//! ```

mod edit;

use std::{sync::Arc, time::Duration};

use runtime::{clock::Clock, random::Random};
use serde_json::{Value, json};

pub use self::edit::Edit;
use super::{
    check::{Refusal, check},
    defaults,
    managed::{Contested, GIVEN, Managers},
    objects::{Objects, is_deleting, uid},
    schema::{self, Misread},
};
use crate::{
    cluster::{Error, Fault},
    object::{Ref, Type, Uid},
};

/// Who waits until what blocks a deletion is gone.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// What the controllers are called as managers.
pub(super) const CONTROLLERS: &str = "kube-controller-manager";
/// The first addresses of services are for the cluster itself.
const ADDRESS_FIRST: u32 = 0x0a60_000a;

pub(super) struct Server {
    pub objects: Objects,
    clock: Clock,
    random: Random,
    addresses: u32,
}

/// What becomes of that which goes with a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// The object waits for it.
    Foreground,
    /// It goes afterwards.
    Background,
}

impl Server {
    pub fn new(history_max: usize, clock: Clock, random: Random) -> Server {
        Server { objects: Objects::new(history_max), clock, random, addresses: ADDRESS_FIRST }
    }

    /// Makes the fields of `body` what they say. Without force, not those that another manager set otherwise.
    pub fn apply(
        &mut self,
        by: &str,
        force: bool,
        object: &Ref,
        body: &Value,
    ) -> Result<Arc<Value>, Refusal> {
        let body = without_nulls(body);
        check_identity(object, &body)?;
        match schema::unknown(object.ty, &body) {
            Ok(None) => {}
            Ok(Some(path)) => return Err(refused(format!("{path}: field not declared in schema")).into()),
            Err(Misread(said)) => return Err(refused(said).into()),
        }
        let live = self.objects.get(object).cloned();
        if live.is_none() {
            self.check_namespace(object)?;
        }
        let before = live.as_deref();
        let mut managers = before.map(Managers::read).unwrap_or_default();
        let mut value =
            managers.apply(by, force, before.unwrap_or(&Value::Null), &body).map_err(contested)?;
        keep_given(before, &mut value);
        self.finish(object, before, value, &managers)
    }

    /// Changes an object as somebody does who has read it.
    pub fn edit(&mut self, by: &str, object: &Ref, edit: &Edit) -> Result<Arc<Value>, Refusal> {
        let live = self.objects.get(object).cloned().ok_or_else(|| not_found(object))?;
        let edited = edit.of(&live).map_err(refused)?;
        let mut value = schema::known(object.ty, &edited).map_err(|Misread(said)| refused(said))?;
        keep_given(Some(&live), &mut value);
        defaults::fill(object.ty, &mut value);
        let mut managers = Managers::read(&live);
        managers.update(by, &live, &value);
        self.finish(object, Some(&live), value, &managers)
    }

    /// Makes an object that a controller has thought of.
    pub fn create(&mut self, object: &Ref, mut value: Value) -> Result<Arc<Value>, Refusal> {
        if self.objects.get(object).is_some() {
            return Err(Error::new(Fault::Conflict, format!("{object} already exists")).into());
        }
        self.check_namespace(object)?;
        defaults::fill(object.ty, &mut value);
        let mut managers = Managers::default();
        managers.update(CONTROLLERS, &Value::Null, &value);
        self.finish(object, None, value, &managers)
    }

    /// Changes an object as a controller does.
    pub fn update(&mut self, object: &Ref, change: impl FnOnce(&mut Value)) {
        let Some(live) = self.objects.get(object).cloned() else { return };
        let mut value = (*live).clone();
        change(&mut value);
        let mut managers = Managers::read(&live);
        managers.update(CONTROLLERS, &live, &value);
        self.store(object, Some(&live), value, &managers);
    }

    /// Says how an object is; nothing, if that is known.
    pub fn set_status(&mut self, object: &Ref, status: Value) {
        let Some(live) = self.objects.get(object).filter(|live| live["status"] != status).cloned() else {
            return;
        };
        let mut value = (*live).clone();
        value["status"] = status;
        self.objects.put(object, value);
    }

    /// Deletes an object, if it is the one with this uid. It may take until something else is done or gone.
    pub fn delete(
        &mut self,
        object: &Ref,
        meant: Option<&Uid>,
        propagation: Propagation,
    ) -> Result<(), Error> {
        let live = self.objects.get(object).cloned().ok_or_else(|| not_found(object))?;
        if meant.is_some_and(|meant| *meant != uid(&live)) {
            return Err(Error::new(Fault::Conflict, format!("{object} has another uid")));
        }
        let mut value = (*live).clone();
        let grace = grace(object.ty, &live);
        let at = seconds(&(self.clock.now() + grace).to_string());
        let about = &mut value["metadata"];
        if !is_deleting(&live) {
            about["deletionTimestamp"] = at.into();
            about["deletionGracePeriodSeconds"] = grace.as_secs().into();
            if let Some(generation) = about["generation"].as_u64() {
                about["generation"] = (generation + 1).into();
            }
        }
        let mut finalizers = about["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != FOREGROUND);
        if propagation == Propagation::Foreground {
            finalizers.push(FOREGROUND.into());
        }
        set_finalizers(&mut value, finalizers);
        if object.ty == Type::Namespace {
            value["status"]["phase"] = "Terminating".into();
        }
        self.put(object, Some(&live), value);
        Ok(())
    }

    /// What this finalizer stood for is done.
    pub fn finalize(&mut self, object: &Ref, finalizer: &str) {
        let Some(live) = self.objects.get(object).cloned() else { return };
        let mut value = (*live).clone();
        let mut finalizers = value["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.retain(|one| one != finalizer);
        set_finalizers(&mut value, finalizers);
        if object.ty == Type::Namespace {
            value["spec"]["finalizers"] = json!([]);
        }
        self.put(object, Some(&live), value);
    }

    /// Nothing of a deleted pod runs any more.
    pub fn end_pod(&mut self, object: &Ref) {
        let Some(live) = self.objects.get(object).cloned() else { return };
        let mut value = (*live).clone();
        value["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        self.put(object, Some(&live), value);
    }

    fn check_namespace(&self, object: &Ref) -> Result<(), Error> {
        if !object.ty.is_namespaced() {
            return Ok(());
        }
        self.check_place(&object.namespace)
    }

    /// Whether something may be made in a namespace.
    pub fn check_place(&self, namespace: &str) -> Result<(), Error> {
        let namespace = Ref::new(Type::Namespace, "", namespace);
        match self.objects.get(&namespace) {
            None => Err(not_found(&namespace)),
            Some(live) if is_deleting(live) => {
                let said = format!("{namespace} is on its way out, and nothing new is made in it");
                Err(Error::new(Fault::Conflict, said))
            }
            Some(_) => Ok(()),
        }
    }

    fn finish(
        &mut self,
        object: &Ref,
        before: Option<&Value>,
        mut value: Value,
        managers: &Managers,
    ) -> Result<Arc<Value>, Refusal> {
        value["metadata"]["name"] = (*object.name).into();
        if object.ty.is_namespaced() {
            value["metadata"]["namespace"] = (*object.namespace).into();
        }
        defaults::fill(object.ty, &mut value);
        if object.ty == Type::Service && value["spec"]["clusterIP"].is_null() {
            value["spec"]["clusterIP"] = std::net::Ipv4Addr::from_bits(self.addresses).to_string().into();
            self.addresses += 1;
        }
        check(object.ty, before, &value)?;
        Ok(self.store(object, before, value, managers))
    }

    /// What is the same as before costs no revision.
    fn store(
        &mut self,
        object: &Ref,
        before: Option<&Value>,
        mut value: Value,
        managers: &Managers,
    ) -> Arc<Value> {
        match before {
            None => {
                value["metadata"]["uid"] = self.new_uid().into();
                value["metadata"]["creationTimestamp"] = seconds(&self.clock.now().to_string()).into();
                if has_generation(object.ty) {
                    value["metadata"]["generation"] = 1.into();
                }
            }
            Some(before) if has_generation(object.ty) && !is_same_spec(before, &value) => {
                let generation = before["metadata"]["generation"].as_u64().unwrap_or(0);
                value["metadata"]["generation"] = (generation + 1).into();
            }
            Some(_) => {}
        }
        managers.write(&mut value);
        self.put(object, before, value)
    }

    fn put(&mut self, object: &Ref, before: Option<&Value>, value: Value) -> Arc<Value> {
        if is_deleting(&value) && is_free(object.ty, &value) {
            self.objects.remove(object);
            return Arc::new(value);
        }
        match self.objects.get(object) {
            Some(live) if before == Some(&value) => live.clone(),
            Some(_) | None => self.objects.put(object, value),
        }
    }

    pub fn new_uid(&self) -> String {
        let [high, low] = [self.random.u64(), self.random.u64()];
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xfff,
            low >> 48 & 0x3fff | 0x8000,
            low & 0xffff_ffff_ffff
        )
    }
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(Fault::Refused, message)
}

fn not_found(object: &Ref) -> Error {
    Error::new(Fault::NotFound, format!("there is no {object}"))
}

fn contested(Contested { manager }: Contested) -> Refusal {
    Error::new(Fault::Conflict, format!("{manager} has set it otherwise")).into()
}

fn check_identity(object: &Ref, body: &Value) -> Result<(), Error> {
    let Ref { ty, namespace, name } = object;
    let is_other =
        |field: &str, wanted: &str| body["metadata"][field].as_str().is_some_and(|said| said != wanted);
    if body["kind"] != ty.kind() || body["apiVersion"] != ty.api_version().as_str() {
        return Err(refused(format!("{object}: the body is another kind of object")));
    }
    if is_other("name", name) || (ty.is_namespaced() && is_other("namespace", namespace)) {
        return Err(refused(format!("{object}: the body names another object")));
    }
    Ok(())
}

/// What only the API server says of an object stays as it was; how it is, its controller says elsewhere.
fn keep_given(before: Option<&Value>, value: &mut Value) {
    let Some(before) = before else { return };
    for name in GIVEN {
        restore(&mut value["metadata"], name, &before["metadata"][name]);
    }
    restore(value, "status", &before["status"]);
}

fn restore(holder: &mut Value, name: &str, value: &Value) {
    match holder.as_object_mut() {
        Some(fields) if value.is_null() => drop(fields.remove(name)),
        Some(fields) => drop(fields.insert(name.to_owned(), value.clone())),
        None => {}
    }
}

fn set_finalizers(value: &mut Value, finalizers: Vec<Value>) {
    let finalizers = if finalizers.is_empty() { Value::Null } else { Value::Array(finalizers) };
    restore(&mut value["metadata"], "finalizers", &finalizers);
}

/// How long a pod may take to end; what else there is has nothing to end.
fn grace(ty: Type, live: &Value) -> Duration {
    let is_over = ["Succeeded", "Failed"].iter().any(|phase| live["status"]["phase"] == *phase);
    match live["spec"]["terminationGracePeriodSeconds"].as_u64() {
        Some(seconds) if ty == Type::Pod && !is_over => Duration::from_secs(seconds),
        Some(_) | None => Duration::ZERO,
    }
}

/// Whether nothing holds a deleted object any more.
fn is_free(ty: Type, value: &Value) -> bool {
    let is_empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    is_empty(&value["metadata"]["finalizers"])
        && match ty {
            Type::Pod => value["metadata"]["deletionGracePeriodSeconds"] == 0,
            Type::Namespace => is_empty(&value["spec"]["finalizers"]),
            _ => true,
        }
}

const fn has_generation(ty: Type) -> bool {
    match ty {
        Type::ReplicaSet
        | Type::Deployment
        | Type::PodDisruptionBudget
        | Type::CiliumNetworkPolicy
        | Type::Pod => true,
        Type::Namespace
        | Type::ServiceAccount
        | Type::Secret
        | Type::Service
        | Type::HorizontalPodAutoscaler => false,
    }
}

fn is_same_spec(before: &Value, after: &Value) -> bool {
    before["spec"] == after["spec"] && before["specs"] == after["specs"]
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let said = fields.iter().filter(|(_, value)| !value.is_null());
            said.map(|(name, value)| (name.clone(), without_nulls(value))).collect()
        }
        Value::Array(list) => list.iter().map(without_nulls).collect(),
        value => value.clone(),
    }
}

/// A time as the API writes it, in whole seconds.
pub(super) fn seconds(time: &str) -> String {
    let (whole, _) = time.split_once('.').unwrap_or((time.trim_end_matches('Z'), ""));
    format!("{whole}Z")
}
