//! The claims about nouns, the same for every database, and the ground they stand on.

#[path = "apply_errors.rs"]
pub mod apply_errors;
#[path = "graves.rs"]
pub mod graves;
#[path = "instances.rs"]
pub mod instances;
#[path = "leases.rs"]
pub mod leases;
#[path = "round_trips.rs"]
pub mod round_trips;
#[path = "sentinels.rs"]
pub mod sentinels;
#[path = "tokens.rs"]
pub mod tokens;
#[path = "traffic.rs"]
pub mod traffic;
#[path = "tree.rs"]
pub mod tree;
#[path = "watched.rs"]
pub mod watched;
#[path = "workflows.rs"]
pub mod workflows;

use std::time::Duration;

use model::{
    cluster::{Counts, Epoch, HeldBack},
    deployment::{Deployment, DesiredState, Progress, Status},
    environment::Environment,
    id::ChangeId,
    name::{Line, Placement},
    project::{App, Project, Workspace},
    time::Millis,
    topology::Topology,
    watch::Cursor,
};
use runtime::{clock::Clock, random::Random, shutdown::Tasks};
use store::{Begun, Cause, Commit, Item, Renewal, Result, State, Store, Surroundings, Topic, Write};

use crate::database::Database;

/// Makes a test of every claim, each on a database of its own.
macro_rules! suite {
    ($database:expr) => {
        suite!($database;
            tree: {
                a_workspace_reads_back, a_project_and_its_apps_read_back, a_page_goes_on_where_the_last_one_ended,
                every_change_of_the_tree_has_its_revision, an_environment_reads_back_with_all_its_settings,
                an_environment_of_defaults_reads_back, a_deployment_reads_back_with_everything,
                a_deployment_without_anything_optional_reads_back, a_step_reads_back,
                deployments_are_listed_newest_first, a_locked_row_is_read_as_it_is,
            }
            round_trips: {
                a_sentinel_reads_back, a_network_policy_reads_back, a_route_reads_back, an_event_reads_back,
                a_token_reads_back, a_key_reads_back, a_region_reads_back,
            }
            watched: {
                a_put_of_what_is_there_spends_no_version, every_stream_has_the_state_of_its_row,
                a_hostname_moves_in_one_commit, a_revocation_is_never_taken_back,
                the_use_of_a_token_spends_no_version, progress_reaches_every_place_of_a_deployment,
                every_change_says_what_it_is_put_down_to, a_confirmation_is_for_the_list_that_was_seen,
            }
            apply_errors: {
                an_apply_error_is_set_and_cleared, what_comes_back_after_it_was_removed_has_no_error, old_news_of_an_apply_never_wins,
                an_apply_turns_when_it_fails_first_and_when_it_is_well_again,
                an_error_of_a_state_that_is_no_longer_wanted_is_old, an_apply_of_what_is_not_there_is_no_error,
                an_apply_without_a_term_is_believed_while_none_lives,
                that_it_is_well_again_ends_an_error_whatever_is_wanted_by_then,
                without_a_term_that_it_is_well_again_is_of_its_state_alone,
            }
            instances: {
                a_report_is_routed, the_same_report_spends_no_version, old_news_never_wins,
                of_two_reports_in_a_batch_the_later_one_wins, a_report_of_another_term_is_refused,
                a_report_without_a_term_is_believed_while_none_lives, an_unknown_name_is_no_error,
                a_pod_that_moves_changes_both_rows, a_replaced_pod_is_another_instance,
                a_delete_removes_all_instances, a_removed_row_takes_no_instances,
                an_inventory_ends_what_it_does_not_name, what_was_reported_after_an_inventory_stays,
                a_late_report_brings_nothing_back, concurrent_batches_do_not_deadlock,
            }
            sentinels: {
                a_sentinel_report_changes_only_what_was_seen, old_news_of_a_sentinel_never_wins,
                a_sentinel_is_found_by_its_name, a_rollout_and_an_apply_error_survive_a_report,
                an_inventory_ends_the_sentinels_it_does_not_name,
                what_was_reported_of_a_sentinel_after_an_inventory_stays,
            }
            leases: {
                a_term_begins_above_the_last, a_term_of_another_cluster_is_refused_while_the_lease_lives,
                a_renewal_spends_no_version, a_renewal_of_another_term_is_refused,
                an_agent_without_terms_renews_while_none_lives, a_lease_that_is_past_makes_unreachable,
                a_renewed_lease_restores_the_cluster, nobody_expires_while_nobody_served,
                a_heartbeat_reads_back_and_keeps_what_was_confirmed,
                a_second_renews_expires_and_says_that_we_serve, a_heartbeat_is_answered_with_what_was_confirmed,
                two_replicas_that_serve_the_same_clusters_do_not_deadlock,
            }
            tokens: {
                a_rotated_token_overlaps_with_its_successor, a_rotation_never_makes_a_token_live_longer,
                a_revoked_token_is_not_rotated, a_new_store_has_no_user_token,
            }
            traffic: {
                only_what_grew_counts_and_a_retry_counts_once, every_life_and_every_place_has_sums_of_its_own,
                of_several_reports_of_one_life_the_newest_counts, traffic_is_kept_in_buckets_of_five_seconds,
                a_request_reads_back, the_last_ten_thousand_requests_are_kept,
            }
            workflows: {
                a_workflow_reads_back_and_is_begun_once, a_claim_is_had_by_one_until_it_runs_out,
                what_is_held_lasts_with_each_write_and_is_due_if_its_holder_ends, a_step_and_an_end_read_back,
                what_runs_is_counted_at_its_largest, what_was_chosen_is_remembered,
                one_replica_sweeps_at_a_time, old_events_go_but_those_that_are_kept,
            }
            graves: {
                a_tombstone_goes_with_its_row_and_raises_the_floor, a_stopped_row_stays_after_its_tombstone,
                an_environment_goes_after_everything_in_it, a_cluster_goes_after_everything_in_it,
                what_was_removed_lives_again_when_it_is_put,
            }
        );
    };
    ($database:expr; $($module:ident: { $($claim:ident),* $(,)? })*) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $claim() {
                suite::$module::$claim(suite::Ground::lay($database.await).await).await;
            }
        )*)*
    };
}

/// An open store with a tree, two clusters and two deployments in it.
pub struct Ground {
    pub store: Store,
    pub tasks: Tasks,
    _database: Database,
}

pub const AT: Millis = Millis(1_700_000_000_123);

pub const CAUSE: Cause = Cause { change: Some(ChangeId::sample(3)), at: AT };

pub const TTL: Duration = Duration::from_hours(1);

impl Ground {
    pub async fn lay(database: Database) -> Ground {
        Ground::lay_at(database, Clock::system()).await
    }

    pub async fn lay_at(database: Database, clock: Clock) -> Ground {
        let tasks = Tasks::new();
        let surroundings = Surroundings { clock, random: Random::seeded(7), tasks: tasks.clone() };
        let store = Store::open(&database.config(), surroundings).await.expect("the store opens");
        let ground = Ground { store, tasks, _database: database };
        ground.write(lay).await;
        ground
    }

    /// Does `work` in one write; an error undoes it.
    pub async fn attempt<T>(&self, work: impl AsyncFnOnce(&mut Write) -> Result<T>) -> Result<(T, Commit)> {
        let mut write = self.store.begin().await?;
        match work(&mut write).await {
            Ok(value) => Ok((value, write.commit().await?)),
            Err(error) => {
                write.rollback().await?;
                Err(error)
            }
        }
    }

    /// What a write answers; it must succeed.
    pub async fn write<T>(&self, work: impl AsyncFnOnce(&mut Write) -> Result<T>) -> T {
        self.attempt(work).await.expect("the write succeeds").0
    }

    /// What a write answers, and which columns it numbered, in order.
    pub async fn stamped<T>(&self, work: impl AsyncFnOnce(&mut Write) -> Result<T>) -> (T, Vec<String>) {
        let (value, commit) = self.attempt(work).await.expect("the write succeeds");
        let stamped = commit.0.iter().map(|stamped| format!("{}.{}", stamped.table, stamped.column));
        (value, stamped.collect())
    }

    /// Everything the streams hold, from the beginning.
    pub async fn items(&self) -> Vec<Item> {
        let picture = self.store.changes(Cursor::default()).await.expect("the changes can be read");
        picture.items.iter().map(|item| Item::clone(item)).collect()
    }

    /// What a stream says of one object, if anything.
    pub async fn item(&self, topic: &Topic, key: &impl ToString) -> Option<Item> {
        let key = key.to_string();
        self.items().await.into_iter().find(|item| item.topic == *topic && item.key.as_str() == key)
    }

    /// The same, which must be there and alive.
    pub async fn state(&self, topic: &Topic, key: &impl ToString) -> State {
        let item = self.item(topic, key).await.expect("it is on the stream");
        assert!(!item.gone, "it is alive");
        item.state
    }

    /// Begins a term in a place, for the sample cluster.
    pub async fn begin(&self, placement: &Placement) -> Epoch {
        let begun = self.write(async |write| write.begin_term(placement, &uid(), &agent(), TTL).await).await;
        let Begun::Term { epoch, .. } = begun else { panic!("a term begins, not {begun:?}") };
        epoch
    }
}

async fn lay(write: &mut Write) -> Result<()> {
    write.put_workspace(&Workspace::sample(), AT).await?;
    write.put_project(&Project::sample(), AT).await?;
    write.put_app(&App::sample(), AT).await?;
    write.put_environment(&Environment::sample(), &CAUSE).await?;
    for place in [here(), there()] {
        write.put_region(&place.region, true, AT).await?;
        write.put_cluster(&place, &CAUSE).await?;
    }
    for number in [1, 2] {
        write.put_deployment(&deployment(number), &progress(Status::Deploying)).await?;
    }
    Ok(())
}

pub fn here() -> Placement {
    Placement::sample()
}

pub fn there() -> Placement {
    "gcp/europe-west1:b".parse().unwrap()
}

pub fn uid() -> Line {
    "5f0c9d1e-8a44-4f53-9d51-2b3c3f3e1a77".parse().unwrap()
}

pub fn agent() -> Line {
    "agent-1".parse().unwrap()
}

pub fn deployment(number: u128) -> Deployment {
    Deployment::sample().numbered(number)
}

pub fn progress(status: Status) -> Progress {
    Progress { status, desired: DesiredState::Running, reason: None, updated_at: AT }
}

/// Puts a deployment into a place.
pub async fn place(write: &mut Write, number: u128, placement: &Placement) -> Result<bool> {
    let deployment = deployment(number);
    let topology = Topology { placement: placement.clone(), ..Topology::sample().of(deployment.id) };
    write.put_topology(&topology, &deployment, Status::Deploying, &CAUSE).await
}

/// A heartbeat that has nothing to say.
pub fn renewal(placement: &Placement, epoch: Option<Epoch>) -> Renewal {
    let (counts, held_back): (Vec<Counts>, Vec<HeldBack>) = (vec![], vec![]);
    Renewal { placement: placement.clone(), epoch, ttl: TTL, agent_version: None, counts, held_back }
}
