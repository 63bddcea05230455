//! What sentinels route by: deployments with their instances, hostnames, policies.

use buffa::Message as _;
use model::{
    deployment::{Protocol, Status},
    id::{DeploymentId, EnvironmentId},
    instance,
    invalid::{Field, Invalid, Problems},
    limits,
    name::{Address, Hostname, LabelValue, PodName},
    route::{Route, Target, Targets},
    watch::{Event, Key, Version},
};
use proto::route_event::Event as Inner;

use crate::{
    proto, read,
    report::{read_status, status},
    watch::{Around, Stamp, read_bookmark},
};

/// One object of a sentinel's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Routed {
    Deployment {
        id: DeploymentId,
        status: Status,
        protocol: Protocol,
        upstreams: Vec<Upstream>,
    },
    Route(Route),
    /// A JSON list, as it was set.
    Policies {
        environment: EnvironmentId,
        policies: std::sync::Arc<str>,
    },
    DeploymentGone(DeploymentId),
    RouteGone(Hostname),
    PoliciesGone(EnvironmentId),
}

/// An instance as a sentinel sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    pub name: PodName,
    pub address: Option<Address>,
    pub zone: Option<LabelValue>,
    pub status: instance::Status,
}

/// What the stream calls an object: `deployment/<id>`, `route/<hostname>`, `policies/<environment id>`. Both ends
/// take it from here, so that they count alike.
pub fn key(routed: &Routed) -> Key {
    match routed {
        Routed::Deployment { id, .. } | Routed::DeploymentGone(id) => deployment_key(*id),
        Routed::Route(Route { hostname, .. }) | Routed::RouteGone(hostname) => route_key(hostname),
        Routed::Policies { environment, .. } | Routed::PoliciesGone(environment) => {
            policies_key(*environment)
        }
    }
}

pub fn deployment_key(id: DeploymentId) -> Key {
    Key::new(format!("deployment/{id}"))
}

pub fn route_key(hostname: &Hostname) -> Key {
    Key::new(format!("route/{hostname}"))
}

pub fn policies_key(environment: EnvironmentId) -> Key {
    Key::new(format!("policies/{environment}"))
}

impl From<&instance::Instance> for Upstream {
    fn from(seen: &instance::Instance) -> Self {
        Upstream {
            name: seen.k8s_name.clone(),
            address: seen.address.clone(),
            zone: seen.zone.clone(),
            status: seen.status,
        }
    }
}

impl Routed {
    /// A tombstone.
    pub fn is_gone(&self) -> bool {
        match self {
            Routed::Deployment { .. } | Routed::Route(_) | Routed::Policies { .. } => false,
            Routed::DeploymentGone(_) | Routed::RouteGone(_) | Routed::PoliciesGone(_) => true,
        }
    }
}

/// The message of one object; whether it is a tombstone is in the object and in the stamp alike.
pub fn state(routed: &Routed, stamp: &Stamp) -> proto::RouteEvent {
    assert_eq!(routed.is_gone(), stamp.gone, "the tombstone of what is gone: {}", key(routed));
    let event: Inner = match routed {
        Routed::Deployment { id, status, protocol, upstreams } => proto::RoutedDeployment {
            deployment_id: id.to_string(),
            status: status.to_string(),
            upstream_protocol: protocol.to_string(),
            instances: upstreams.iter().map(upstream_message).collect(),
        }
        .into(),
        Routed::Route(route) => route_message(route).into(),
        Routed::Policies { environment, policies } => proto::EnvironmentPolicies {
            environment_id: environment.to_string(),
            policies: policies.to_string(),
        }
        .into(),
        Routed::DeploymentGone(id) => proto::DeleteRoutedDeployment { deployment_id: id.to_string() }.into(),
        Routed::RouteGone(hostname) => proto::DeleteHostRoute { hostname: hostname.to_string() }.into(),
        Routed::PoliciesGone(environment) => {
            proto::DeleteEnvironmentPolicies { environment_id: environment.to_string() }.into()
        }
    };
    proto::RouteEvent {
        version: stamp.version.get(),
        event: Some(event),
        change_id: stamp.change_id(),
        end: false,
    }
}

fn upstream_message(Upstream { name, address, zone, status: is }: &Upstream) -> proto::Upstream {
    proto::Upstream {
        address: read::text(address.as_ref()),
        zone: read::text(zone.as_ref()),
        status: status(*is).into(),
        k8s_name: name.to_string(),
    }
}

fn route_message(route: &Route) -> proto::HostRoute {
    let Route { environment: _, hostname, targets, previous, follows, affinity } = route;
    let target = |Target { deployment, weight }: &Target| proto::WeightedTarget {
        deployment_id: deployment.to_string(),
        weight: *weight,
    };
    proto::HostRoute {
        hostname: hostname.to_string(),
        targets: targets.iter().map(target).collect(),
        previous: read::text(previous.as_ref()),
        affinity: affinity.to_string(),
        follows: follows.to_string(),
    }
}

/// One object as bytes, to be kept where it is read again by [`unpack`]: as the stream would have sent it.
pub fn pack(routed: &Routed, version: Version) -> Vec<u8> {
    let stamp = Stamp { version, gone: routed.is_gone(), change: None };
    state(routed, &stamp).encode_to_vec()
}

/// What was [packed](pack), read as strictly as what is heard.
pub fn unpack(bytes: &[u8], environment: EnvironmentId) -> Result<Event<Routed>, Invalid> {
    match proto::RouteEvent::decode_from_slice(bytes) {
        Ok(message) => event(message, environment),
        Err(error) => {
            let mut problems = Problems::new();
            problems.whole().require(false, format!("cannot be decoded: {error}"));
            problems.complete(None)
        }
    }
}

/// What a message of the stream of this environment says. Keys are those of [`key`]: one stream has them all.
pub fn event(event: proto::RouteEvent, environment: EnvironmentId) -> Result<Event<Routed>, Invalid> {
    // The change's id is for people who look at the stream: a sentinel acts on no change by itself.
    let proto::RouteEvent { version, event, change_id: _, end } = event;
    let mut problems = Problems::new();
    let mut whole = problems.whole();
    if let Some(Inner::Bookmark(mark)) = &event {
        let event = read_bookmark(&mut whole, mark);
        return problems.complete(event.map(|(_, event)| event));
    }
    let around = Around::read(&mut whole, version, "", end);
    let event = whole.field("event").required(event);
    let routed = event.and_then(|event| read_routed(&mut whole, event, environment));
    let event = around.zip(routed).map(|(around, routed)| {
        let key = key(&routed);
        if routed.is_gone() { around.delete(key, routed) } else { around.apply(key, routed) }
    });
    problems.complete(event)
}

fn read_routed(whole: &mut Field<'_>, event: Inner, environment: EnvironmentId) -> Option<Routed> {
    match event {
        Inner::Deployment(deployment) => read_deployment(whole.field("deployment"), &deployment),
        Inner::DeleteDeployment(delete) => {
            let mut field = whole.field("delete_deployment");
            field.field("deployment_id").parse(&delete.deployment_id).map(Routed::DeploymentGone)
        }
        Inner::Route(route) => read_route(whole.field("route"), &route, environment).map(Routed::Route),
        Inner::DeleteRoute(delete) => {
            let mut field = whole.field("delete_route");
            field.field("hostname").parse(&delete.hostname).map(Routed::RouteGone)
        }
        Inner::Policies(policies) => read_policies(whole.field("policies"), &policies, environment),
        Inner::DeletePolicies(delete) => {
            let mut field = whole.field("delete_policies");
            let told = read_environment(field.field("environment_id"), &delete.environment_id, environment);
            told.map(Routed::PoliciesGone)
        }
        Inner::Bookmark(_) => None,
    }
}

fn read_deployment(mut field: Field<'_>, told: &proto::RoutedDeployment) -> Option<Routed> {
    let proto::RoutedDeployment { deployment_id, status, upstream_protocol, instances } = told;
    let id = field.field("deployment_id").parse(deployment_id);
    let status = field.field("status").parse(status);
    let protocol = field.field("upstream_protocol").parse(upstream_protocol);
    let upstreams = read::list(field.field("instances"), instances, limits::INSTANCES, read_upstream);
    Some(Routed::Deployment { id: id?, status: status?, protocol: protocol?, upstreams: upstreams? })
}

fn read_upstream(mut field: Field<'_>, told: &proto::Upstream) -> Option<Upstream> {
    let proto::Upstream { address, zone, status, k8s_name } = told;
    let name = field.field("k8s_name").parse(k8s_name);
    let address = read::some(field.field("address"), address);
    let zone = read::some(field.field("zone"), zone);
    let status = read_status(field.field("status"), *status);
    Some(Upstream { name: name?, address: address?, zone: zone?, status: status? })
}

fn read_route(mut field: Field<'_>, told: &proto::HostRoute, environment: EnvironmentId) -> Option<Route> {
    let proto::HostRoute { hostname, targets, previous, affinity, follows } = told;
    let hostname = field.field("hostname").parse(hostname);
    let target = |mut field: Field<'_>, told: &proto::WeightedTarget| {
        let proto::WeightedTarget { deployment_id, weight } = told;
        let deployment = field.field("deployment_id").parse(deployment_id);
        deployment.map(|deployment| Target { deployment, weight: *weight })
    };
    let targets: Option<Vec<Target>> =
        read::list(field.field("targets"), targets, limits::ROUTE_TARGETS, target);
    let targets = targets.and_then(|targets| field.field("targets").nest(Targets::new(targets)));
    let previous = read::some(field.field("previous"), previous);
    let affinity = field.field("affinity").parse(affinity);
    let follows = field.field("follows").parse(follows);
    Some(Route {
        environment,
        hostname: hostname?,
        targets: targets?,
        previous: previous?,
        follows: follows?,
        affinity: affinity?,
    })
}

fn read_policies(
    mut field: Field<'_>,
    told: &proto::EnvironmentPolicies,
    environment: EnvironmentId,
) -> Option<Routed> {
    let proto::EnvironmentPolicies { environment_id, policies } = told;
    let environment = read_environment(field.field("environment_id"), environment_id, environment);
    let is_sized = read::bytes_at_most(field.field("policies"), policies.as_bytes(), limits::POLICIES_BYTES);
    environment
        .filter(|_| is_sized)
        .map(|environment| Routed::Policies { environment, policies: policies.as_str().into() })
}

/// The environment of the stream: it has no other's.
fn read_environment(mut field: Field<'_>, told: &str, own: EnvironmentId) -> Option<EnvironmentId> {
    let told: EnvironmentId = field.parse(told)?;
    field.require(told == own, format_args!("is not {own}")).then_some(own)
}
