//! What may reach a deployment: one Cilium policy for it in each place.

use crate::{
    id::{DeploymentId, NetworkPolicyId},
    limits,
    name::{Error, KubernetesName, Namespace, Placement, check_rule},
};
use std::{fmt, str::FromStr, sync::Arc};

/// A policy that an agent applies as it is, but for its name, namespace and labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkPolicy {
    pub id: NetworkPolicyId,
    pub placement: Placement,
    pub namespace: Namespace,
    pub name: KubernetesName,
    /// It is tombstoned with this deployment.
    pub deployment: DeploymentId,
    pub policy: PolicyJson,
}

/// The whole object as JSON text. What it says is between its author and the API server; here it is only bounded.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PolicyJson(Arc<str>);

impl NetworkPolicy {
    /// The name of the policy that lets an environment's sentinels reach this deployment.
    pub fn name_for(deployment: &KubernetesName) -> Result<KubernetesName, Error> {
        format!("sentinel-ingress-to-{deployment}").parse()
    }
}

impl PolicyJson {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PolicyJson {
    type Err = Error;

    fn from_str(text: &str) -> Result<PolicyJson, Error> {
        let what = "a network policy";
        if text.len() > limits::NETWORK_POLICY_BYTES {
            return Err(Error::TooLong { what, max: limits::NETWORK_POLICY_BYTES, found: text.len() });
        }
        let trimmed = text.trim();
        check_rule(what, trimmed.starts_with('{') && trimmed.ends_with('}'), "is a JSON object")?;
        Ok(PolicyJson(text.into()))
    }
}

impl fmt::Display for PolicyJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PolicyJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicyJson({} bytes)", self.0.len())
    }
}

#[cfg(any(test, feature = "sample"))]
impl NetworkPolicy {
    pub fn sample() -> NetworkPolicy {
        let deployment = DeploymentId::sample(1);
        NetworkPolicy {
            id: NetworkPolicyId::sample(1),
            placement: Placement::sample(),
            namespace: crate::project::Workspace::sample().namespace,
            name: NetworkPolicy::name_for(&deployment.kubernetes_name()).expect("it fits"),
            deployment,
            policy: r#"{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{},"spec":{}}"#
                .parse()
                .expect("an object"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_policy_is_a_bounded_object() {
        assert!(" {} ".parse::<PolicyJson>().is_ok());
        assert!("[]".parse::<PolicyJson>().is_err());
        let long = format!("{{{}}}", " ".repeat(limits::NETWORK_POLICY_BYTES));
        assert!(long.parse::<PolicyJson>().is_err());
        assert_eq!(format!("{:?}", NetworkPolicy::sample().policy), "PolicyJson(82 bytes)");
    }

    proptest! {
        #[test]
        fn every_deployments_name_has_room_for_its_policys(value: u128) {
            let name = DeploymentId::from_u128(value).kubernetes_name();
            prop_assert!(NetworkPolicy::name_for(&name).is_ok());
        }

        #[test]
        fn arbitrary_text_never_panics(text in "\\PC*|\\{\\PC*\\}") {
            if let Ok(policy) = text.parse::<PolicyJson>() {
                prop_assert_eq!(policy.to_string().parse(), Ok(policy));
            }
        }
    }
}
