//! The suite of the API: one list of promises for every database.
#![allow(dead_code, reason = "each test uses what it needs")]

pub mod client;
pub mod made_up;
pub mod more;
pub mod races;
pub mod rollouts;
pub mod suite;
pub mod sweep;
pub mod turns;

use libtest_mimic::Trial;

use super::edge::{self, database::Database, trial::trial};

/// Every promise, each on a database of its own.
pub fn trials(database: fn() -> Database, name: &str) -> Vec<Trial> {
    macro_rules! promises {
        ($($module:ident::$promise:ident,)*) => {
            vec![$(
                trial(
                    format!("{}_on_{name}", stringify!($promise)).leak(),
                    move || async move { $module::$promise(&database()).await },
                ),
            )*]
        };
    }
    promises![
        suite::the_tree_is_made_read_changed_and_removed,
        suite::every_problem_of_a_request_is_told_at_once_and_in_one_shape,
        suite::a_request_that_is_sent_again_under_its_key_is_done_once,
        suite::of_many_changes_of_one_revision_one_is_made,
        suite::a_quota_holds_whoever_races_for_it,
        suite::a_list_is_walked_page_by_page_and_filtered,
        suite::whoever_changes_something_is_in_the_audit_log,
        more::a_deployment_is_begun_and_asked_of_things,
        more::a_live_stream_goes_on_at_another_replica_and_loses_nothing,
        more::a_live_stream_ends_with_its_token,
        more::a_token_is_shown_once_and_opens_what_it_says,
        more::places_are_opened_closed_and_confirmed_by_whoever_may_everywhere,
        turns::what_turns_in_a_cluster_is_on_its_timeline_and_live,
        races::of_deployments_of_one_branch_at_once_the_newest_wins_and_nothing_is_left_of_the_others,
        races::a_deployment_asked_for_many_times_under_one_key_is_one,
        races::deployments_race_for_the_last_of_a_quota,
        races::what_is_deleted_while_it_deploys_leaves_nothing,
        races::hostnames_that_are_asked_for_count,
        rollouts::a_rollout_tells_one_sentinel_after_the_other,
        rollouts::a_rollout_that_fails_pauses_and_is_rolled_back,
        rollouts::there_is_one_rollout_at_a_time_whoever_races_for_it,
        sweep::nobody_is_let_in_by_default,
    ]
}
