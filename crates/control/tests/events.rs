//! Every kind of event happens: each has a test that makes it happen, or a reason why nothing does yet.

use std::path::Path;

use model::event::EventKind;

/// Where a kind is made to happen.
enum Told {
    /// A file below `crates`, and the test in it whose body names the kind.
    By(&'static str, &'static str),
    /// Why nothing tells of it.
    NotYet(&'static str),
}

fn told(kind: EventKind) -> Told {
    use EventKind as K;
    use Told::{By, NotYet};
    const DEPLOY: &str = "control/tests/deploy.rs";
    const VERBS: &str = "control/tests/deploy/verbs.rs";
    const LEASES: &str = "control/tests/leases.rs";
    const AUTH: &str = "control/tests/auth.rs";
    const REPORTS: &str = "control/tests/reports.rs";
    match kind {
        K::DeploymentCreated | K::DeploymentReady | K::RouteSwitched => {
            By(DEPLOY, "a_deployment_goes_from_its_request_to_every_route")
        }
        K::DeploymentStep | K::DeploymentStopped => {
            By(DEPLOY, "what_is_replaced_is_stopped_after_its_grace_and_once_its_successor_runs_there")
        }
        K::DeploymentFailed => By("control/tests/deploy/failing.rs", "fails"),
        K::DeploymentSuperseded => {
            By(VERBS, "of_two_deployments_of_one_branch_the_newer_supersedes_the_older")
        }
        K::DeploymentCancelled => By(VERBS, "a_cancelled_deployment_leaves_nothing"),
        K::InstanceRunning | K::InstanceFailed | K::InstanceGone => {
            By(REPORTS, "what_an_instance_turns_to_is_told_once_and_with_its_report")
        }
        K::ClusterReachable | K::ClusterUnreachable => {
            By(LEASES, "silence_is_noticed_and_a_heartbeat_restores_the_place")
        }
        K::ClusterGuard | K::ClusterOrphans => {
            By(LEASES, "what_is_held_back_and_what_nobody_accounts_for_is_said_once")
        }
        K::ClusterConfirmed => By(
            "cli/tests/confirm.rs",
            "deletions_that_only_absence_speaks_for_wait_for_an_operator_who_names_them",
        ),
        K::RoutePreviousServed => {
            NotYet("sentinels count it in a metric of their own; no report of theirs carries it")
        }
        K::CanaryJudged => {
            By("control/tests/deploy/canary.rs", "a_canary_with_more_errors_is_taken_back_with_the_figures")
        }
        K::SentinelHealthy | K::SentinelUnhealthy => {
            By(REPORTS, "a_sentinel_whose_health_turns_is_told_of_once")
        }
        K::SentinelRolled => By("control/tests/deploy/story.rs", "rollouts"),
        K::DriftCorrected => By(LEASES, "what_was_put_right_is_said_with_how_often"),
        K::ApplyFailed | K::ApplyRecovered => {
            By(REPORTS, "an_apply_that_fails_and_one_that_recovers_are_events")
        }
        K::TokenCreated => By(AUTH, "the_first_token_for_a_place_makes_the_place_in_one_write"),
        K::TokenRevoked => By(AUTH, "a_revoked_token_ends_its_open_streams"),
        K::SecretChanged => NotYet("there are no variables: they come with the vault"),
    }
}

#[test]
fn every_kind_of_event_has_a_test_that_makes_it_happen_or_a_reason() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crates");
    for kind in EventKind::ALL {
        match told(*kind) {
            Told::By(file, test) => {
                let text = std::fs::read_to_string(crates.join(file))
                    .unwrap_or_else(|error| panic!("{file}: {error}"));
                let begin =
                    text.find(&format!("fn {test}(")).unwrap_or_else(|| panic!("{file} has no {test}"));
                let body = text[begin..].split("\n}\n").next().unwrap_or_default();
                assert!(body.contains(&format!("EventKind::{kind:?}")), "{test} does not name {kind}");
            }
            Told::NotYet(reason) => assert!(!reason.is_empty(), "{kind}"),
        }
    }
}
