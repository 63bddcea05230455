//! Leases of `coordination.k8s.io`, as the API has them and as we do.

mod watch;

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use serde_json::{Value, json};

pub(super) use self::watch::LeaseWatch;
use super::fault::garbled;
use crate::cluster::{Lease, Result};

#[derive(Deserialize)]
struct Leases {
    metadata: ListMetadata,
    items: Vec<Sent>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
}

#[derive(Deserialize)]
struct Sent {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u32>,
    lease_transitions: Option<u32>,
    renew_time: Option<String>,
}

/// The leases of a list, and its revision.
pub(super) fn read_list(answer: &[u8]) -> Result<(Vec<Lease>, String)> {
    let Leases { metadata, items } = serde_json::from_slice(answer).map_err(garbled)?;
    Ok((items.into_iter().map(Lease::from).collect(), metadata.resource_version))
}

pub(super) fn read(answer: &[u8]) -> Result<Lease> {
    let sent: Sent = serde_json::from_slice(answer).map_err(garbled)?;
    Ok(sent.into())
}

fn read_object(object: Value) -> Result<Lease> {
    let sent: Sent = serde_json::from_value(object).map_err(garbled)?;
    Ok(sent.into())
}

pub(super) fn write(namespace: &str, lease: &Lease) -> Value {
    let Lease { name, holder, transitions, renewed_at, duration, annotations, revision } = lease;
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "annotations": annotations,
            "resourceVersion": revision,
        },
        "spec": {
            "holderIdentity": holder,
            "leaseTransitions": transitions,
            "renewTime": renewed_at.as_deref().map(with_microseconds),
            // The API knows whole seconds, and no fewer than one.
            "leaseDurationSeconds": duration.map(|duration| duration.as_secs().max(1)),
        },
    })
}

/// A lease as it reads back when it was written.
pub(in crate::cluster) fn as_kept(namespace: &str, lease: &Lease) -> Result<Lease> {
    let written = Lease { revision: Some(String::new()), ..lease.clone() };
    read(write(namespace, &written).to_string().as_bytes())
}

/// The API reads a time of a lease only with all six digits behind its seconds.
fn with_microseconds(time: &str) -> String {
    let Some(time) = time.strip_suffix('Z') else { return time.to_owned() };
    let (seconds, fraction) = time.split_once('.').unwrap_or((time, ""));
    format!("{seconds}.{fraction:0<6.6}Z")
}

impl From<Sent> for Lease {
    fn from(Sent { metadata, spec }: Sent) -> Lease {
        Lease {
            name: metadata.name,
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            transitions: spec.lease_transitions.unwrap_or(0),
            renewed_at: spec.renew_time,
            duration: spec.lease_duration_seconds.map(|seconds| Duration::from_secs(seconds.into())),
            annotations: metadata.annotations,
            revision: Some(metadata.resource_version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_reads_back_as_it_was_written() {
        let lease = Lease {
            name: "krane-default".to_owned(),
            holder: Some("agent-1".to_owned()),
            transitions: 3,
            renewed_at: Some("2026-11-05T09:30:00.125000Z".to_owned()),
            duration: Some(Duration::from_secs(8)),
            annotations: BTreeMap::from([("unkey.com/shard".to_owned(), "default".to_owned())]),
            revision: Some("42".to_owned()),
        };
        assert_eq!(read(write("krane", &lease).to_string().as_bytes()), Ok(lease));
    }

    #[test]
    fn one_that_nobody_holds_has_no_holder() {
        let sent = br#"{"metadata":{"name":"a","resourceVersion":"1"},"spec":{"holderIdentity":""}}"#;
        assert_eq!(read(sent).unwrap().holder, None);
    }

    #[test]
    fn a_time_gets_all_its_digits() {
        let digits = [
            ("2026-11-05T09:30:00Z", "2026-11-05T09:30:00.000000Z"),
            ("2026-11-05T09:30:00.125Z", "2026-11-05T09:30:00.125000Z"),
            ("2026-11-05T09:30:00.123456789Z", "2026-11-05T09:30:00.123456Z"),
        ];
        for (short, long) in digits {
            assert_eq!(with_microseconds(short), long);
        }
    }
}
