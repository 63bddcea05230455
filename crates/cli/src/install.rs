//! `krane install --print`: what a cluster needs to run krane in it, to be read and applied by its operator.

use clap::{Args, ValueEnum};

#[derive(Args)]
#[command(after_help = "Example:\n  krane install --print agent | kubectl apply -f -")]
pub(crate) struct Install {
    /// Print the manifests of this role; nothing is applied
    #[arg(long, value_name = "ROLE")]
    print: Role,
    /// The namespace it runs in
    #[arg(long, default_value = "krane", value_name = "NAME")]
    namespace: model::name::Namespace,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    /// The agent: its namespace, its account, and what it may do
    Agent,
}

impl Install {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let manifests = match self.print {
            Role::Agent => agent::rbac::manifests(self.namespace.as_str()),
        };
        // YAML is a superset of JSON, and every tool that reads manifests reads this.
        let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": manifests });
        println!("{}", serde_json::to_string_pretty(&list)?);
        Ok(())
    }
}
