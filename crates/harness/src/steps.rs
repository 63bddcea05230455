//! What can be done to what is wanted of each kind, one step at a time, for those who interrupt an agent at it.

use model::network_policy::NetworkPolicy;

use crate::ground::{Ground, fixed, upto};

/// One thing that is done to what is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    CreateDeployment,
    Scale,
    /// Only the agent's own settings can: a deployment is what it was when it was made.
    ChangeTemplate,
    Autoscale,
    Fix,
    DeleteDeployment,
    CreateSentinel,
    Roll,
    DeleteSentinel,
    CreatePolicy,
    ChangePolicy,
    DeletePolicy,
}

/// Some steps, and the one that it is about.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    pub name: &'static str,
    pub before: &'static [Step],
    pub step: Step,
}

const fn operation(name: &'static str, before: &'static [Step], step: Step) -> Operation {
    Operation { name, before, step }
}

pub const DEPLOYMENT: [Operation; 6] = [
    operation("create", &[], Step::CreateDeployment),
    operation("scale", &[Step::CreateDeployment], Step::Scale),
    operation("change of template", &[Step::CreateDeployment], Step::ChangeTemplate),
    operation("fixed to autoscaled", &[Step::CreateDeployment], Step::Autoscale),
    operation("autoscaled to fixed", &[Step::CreateDeployment, Step::Autoscale], Step::Fix),
    operation("delete", &[Step::CreateDeployment, Step::Autoscale], Step::DeleteDeployment),
];

pub const SENTINEL: [Operation; 3] = [
    operation("create", &[], Step::CreateSentinel),
    operation("roll", &[Step::CreateSentinel], Step::Roll),
    operation("delete", &[Step::CreateSentinel], Step::DeleteSentinel),
];

pub const POLICY: [Operation; 3] = [
    operation("create", &[], Step::CreatePolicy),
    operation("change", &[Step::CreatePolicy], Step::ChangePolicy),
    operation("delete", &[Step::CreatePolicy], Step::DeletePolicy),
];

impl Step {
    /// Writes it down in the store. The settings of the agent are not there.
    pub async fn take(self, ground: &Ground) {
        let names = &ground.names;
        let (deployment, sentinel, policy) = (names.deployment(1), names.sentinel(1), names.policy(1));
        let _version = match self {
            Step::CreateDeployment => ground.put_deployment(&deployment, fixed(2)).await,
            Step::Scale | Step::Fix => ground.put_deployment(&deployment, fixed(3)).await,
            Step::ChangeTemplate => return,
            Step::Autoscale => ground.put_deployment(&deployment, upto(4)).await,
            Step::DeleteDeployment => ground.remove_deployment(&deployment).await,
            Step::CreateSentinel => ground.put_sentinel(&sentinel).await,
            Step::Roll => {
                let mut rolled = sentinel;
                rolled.desired.image = "krane/sentinel:2".parse().expect("an image");
                ground.put_sentinel(&rolled).await
            }
            Step::DeleteSentinel => ground.remove_sentinel(sentinel.id).await,
            Step::CreatePolicy => ground.put_policy(&policy).await,
            Step::ChangePolicy => {
                let json = policy.policy.as_str().replace("\"8080\"", "\"9090\"");
                let changed = NetworkPolicy { policy: json.parse().expect("an object"), ..policy };
                ground.put_policy(&changed).await
            }
            Step::DeletePolicy => ground.remove_policy(policy.id).await,
        };
    }
}
