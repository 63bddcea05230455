//! Events as users look through them: forwards from a number, or backwards from the newest.

use std::sync::LazyLock;

use model::{
    event::{Event, EventKind},
    id::{AppId, DeploymentId, EnvironmentId, SentinelId, WorkspaceId},
    watch::Version,
};

use super::{COLUMNS, decode_numbered, version_cell};
use crate::{Result, Store, listing::Listing, value::text};

const FILTERS: [&str; 6] =
    ["e.workspace_id", "e.app_id", "e.environment_id", "e.deployment_id", "e.sentinel_id", "e.kind"];

static NEWEST: LazyLock<Listing> = LazyLock::new(|| {
    let columns = format!("{}, e.version", *COLUMNS);
    Listing::newest_first(&columns, "events e", "e.version", None, &FILTERS)
});

static OLDEST: LazyLock<Listing> = LazyLock::new(|| {
    let columns = format!("{}, e.version", *COLUMNS);
    Listing::oldest_first(&columns, "events e", "e.version", None, &FILTERS)
});

/// Which events are asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventFilter {
    pub workspace: Option<WorkspaceId>,
    pub app: Option<AppId>,
    pub environment: Option<EnvironmentId>,
    pub deployment: Option<DeploymentId>,
    pub sentinel: Option<SentinelId>,
    pub kind: Option<EventKind>,
}

impl EventFilter {
    /// Whether an event is among those that are asked for.
    pub fn takes(&self, event: &Event) -> bool {
        fn same<T: PartialEq>(wanted: Option<T>, found: Option<T>) -> bool {
            wanted.is_none() || wanted == found
        }
        let of = &event.subject;
        same(self.workspace, of.workspace)
            && same(self.app, of.app)
            && same(self.environment, of.environment)
            && same(self.deployment, of.deployment)
            && same(self.sentinel, of.sentinel)
            && same(self.kind, Some(event.kind))
    }
}

impl Store {
    /// Events before a number, the newest first; without a number, from the newest on.
    pub async fn events_before(
        &self,
        filter: EventFilter,
        before: Option<Version>,
        limit: u32,
    ) -> Result<Vec<(Version, Event)>> {
        self.list_events(&NEWEST, filter, before, limit).await
    }

    /// Events after a number, the oldest first.
    pub async fn events_after(
        &self,
        filter: EventFilter,
        after: Version,
        limit: u32,
    ) -> Result<Vec<(Version, Event)>> {
        self.list_events(&OLDEST, filter, Some(after), limit).await
    }

    async fn list_events(
        &self,
        list: &'static Listing,
        filter: EventFilter,
        beyond: Option<Version>,
        limit: u32,
    ) -> Result<Vec<(Version, Event)>> {
        let filters = vec![
            filter.workspace.as_ref().map(text),
            filter.app.as_ref().map(text),
            filter.environment.as_ref().map(text),
            filter.deployment.as_ref().map(text),
            filter.sentinel.as_ref().map(text),
            filter.kind.map(|kind| kind.as_str().into()),
        ];
        let (sql, params) = list.page(filters, beyond.map(version_cell), limit);
        self.read(sql, params).await?.iter().map(decode_numbered).collect()
    }
}
