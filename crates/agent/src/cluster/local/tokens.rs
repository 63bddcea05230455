//! Tokens of pods' accounts, by which a pod shows who it is.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD};
use runtime::random::Random;
use serde_json::Value;

use super::objects::{Objects, uid};
use crate::object::{Ref, Uid};

/// Whom a token was made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    pub pod: Ref,
    pub uid: Uid,
    /// `system:serviceaccount:<namespace>:<name>`, as Kubernetes calls it.
    pub user: String,
}

#[derive(Default)]
pub(super) struct Tokens(BTreeMap<String, Bearer>);

impl Tokens {
    /// A token for a pod that is there.
    pub fn make(&mut self, objects: &Objects, random: &Random, pod: &Ref) -> Option<String> {
        let live = objects.get(pod)?;
        let bearer = Bearer { pod: pod.clone(), uid: uid(live), user: user(pod, live) };
        // There is no use for those of pods that are gone.
        self.0.retain(|_, bearer| is_there(objects, bearer));
        let token = URL_SAFE_NO_PAD.encode(random.bytes::<32>());
        self.0.insert(token.clone(), bearer);
        Some(token)
    }

    /// Whose a token is, as long as its pod is there.
    pub fn review(&self, objects: &Objects, token: &str) -> Option<Bearer> {
        self.0.get(token).filter(|bearer| is_there(objects, bearer)).cloned()
    }
}

fn user(pod: &Ref, live: &Value) -> String {
    let account = live["spec"]["serviceAccountName"].as_str().unwrap_or("default");
    format!("system:serviceaccount:{}:{account}", pod.namespace)
}

fn is_there(objects: &Objects, bearer: &Bearer) -> bool {
    objects.get(&bearer.pod).is_some_and(|live| uid(live) == bearer.uid)
}
