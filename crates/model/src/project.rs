//! Who owns what: a workspace has projects, a project has apps.

use crate::{
    id::{AppId, ProjectId, WorkspaceId},
    invalid::{Invalid, Problems},
    name::{Line, Namespace, Slug},
    size::{Resources, Scaling},
    time::Millis,
};

/// Who pays, and whose things live apart from everybody else's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    pub id: WorkspaceId,
    pub slug: Slug,
    pub name: Line,
    /// Where its instances run, in every cluster.
    pub namespace: Namespace,
    pub quotas: Quotas,
    pub created_at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    pub id: ProjectId,
    pub workspace: WorkspaceId,
    pub slug: Slug,
    pub name: Line,
    pub created_at: Millis,
}

/// One thing that is built and deployed, in as many environments as its team likes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    pub id: AppId,
    pub workspace: WorkspaceId,
    pub project: ProjectId,
    pub slug: Slug,
    pub name: Line,
    pub created_at: Millis,
}

/// How much a workspace may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas(pub Usage);

/// How much a workspace uses, or may use. What runs is counted at its largest: size × maximum replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub cpu_millis: u64,
    pub memory_mib: u64,
    pub storage_mib: u64,
    pub deployments: u64,
    pub environments: u64,
    pub hostnames: u64,
}

impl Workspace {
    /// The namespace of a workspace: its id, which no rename changes and no other workspace has.
    pub fn namespace_of(id: WorkspaceId) -> Namespace {
        id.kubernetes_name().into()
    }
}

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas(Usage {
            cpu_millis: 256_000,
            memory_mib: 512 * 1024,
            storage_mib: 1024 * 1024,
            deployments: 10_000,
            environments: 1000,
            hostnames: 10_000,
        })
    }
}

impl Quotas {
    /// Whether this much may be used; if not, everything that is too much.
    pub fn check(&self, usage: &Usage) -> Result<(), Invalid> {
        let mut problems = Problems::new();
        for ((name, used), (_, allowed)) in usage.amounts().into_iter().zip(self.0.amounts()) {
            let problem = format!("would be {used}, above the workspace's quota of {allowed}");
            problems.require(used <= allowed, name, problem);
        }
        problems.finish(())
    }
}

impl Usage {
    /// What instances of this size take in one place, when there are as many as there may be.
    pub fn of(resources: &Resources, scaling: &Scaling) -> Usage {
        let replicas = u64::from(scaling.max().get());
        Usage {
            cpu_millis: replicas * u64::from(resources.cpu.get()),
            memory_mib: replicas * u64::from(resources.memory.get()),
            storage_mib: replicas * resources.storage.map_or(0, |storage| storage.get().into()),
            ..Usage::default()
        }
    }

    #[must_use]
    pub fn and(self, other: Usage) -> Usage {
        Usage {
            cpu_millis: self.cpu_millis.saturating_add(other.cpu_millis),
            memory_mib: self.memory_mib.saturating_add(other.memory_mib),
            storage_mib: self.storage_mib.saturating_add(other.storage_mib),
            deployments: self.deployments.saturating_add(other.deployments),
            environments: self.environments.saturating_add(other.environments),
            hostnames: self.hostnames.saturating_add(other.hostnames),
        }
    }

    fn amounts(&self) -> [(&'static str, u64); 6] {
        let Usage { cpu_millis, memory_mib, storage_mib, deployments, environments, hostnames } = *self;
        [
            ("cpu", cpu_millis),
            ("memory", memory_mib),
            ("storage", storage_mib),
            ("deployments", deployments),
            ("environments", environments),
            ("hostnames", hostnames),
        ]
    }
}

#[cfg(any(test, feature = "sample"))]
mod sample {
    use super::{App, Project, Quotas, Workspace};
    use crate::{
        id::{AppId, ProjectId, WorkspaceId},
        time::Millis,
    };

    impl Workspace {
        pub fn sample() -> Workspace {
            let id = WorkspaceId::sample(1);
            Workspace {
                id,
                slug: "acme".parse().expect("a slug"),
                name: "Acme".parse().expect("a line"),
                namespace: Workspace::namespace_of(id),
                quotas: Quotas::default(),
                created_at: Millis(1_700_000_000_000),
            }
        }
    }

    impl Project {
        pub fn sample() -> Project {
            Project {
                id: ProjectId::sample(1),
                workspace: WorkspaceId::sample(1),
                slug: "shop".parse().expect("a slug"),
                name: "Shop".parse().expect("a line"),
                created_at: Millis(1_700_000_000_000),
            }
        }
    }

    impl App {
        pub fn sample() -> App {
            App {
                id: AppId::sample(1),
                workspace: WorkspaceId::sample(1),
                project: ProjectId::sample(1),
                slug: "web".parse().expect("a slug"),
                name: "Web".parse().expect("a line"),
                created_at: Millis(1_700_000_000_000),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::Replicas;
    use expect_test::expect;

    #[test]
    fn a_quota_names_everything_that_is_too_much() {
        let quotas = Quotas(Usage { cpu_millis: 1000, memory_mib: 512, environments: 1, ..Usage::default() });
        let two = Scaling::Fixed(Replicas::new(2).unwrap());
        let usage = Usage::of(&Resources::default(), &two);
        assert_eq!(quotas.check(&usage), Ok(()));
        expect![["cpu: would be 1500, above the workspace's quota of 1000; \
             memory: would be 1536, above the workspace's quota of 512"]]
        .assert_eq(&quotas.check(&usage.and(usage).and(usage)).unwrap_err().to_string());
    }

    #[test]
    fn a_namespace_is_made_of_the_workspaces_id() {
        let workspace = Workspace::sample();
        assert_eq!(workspace.namespace.as_str(), workspace.id.to_string().replace('_', "-"));
    }
}
