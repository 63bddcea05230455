//! What a deployment's routes become, as data.

use std::collections::BTreeSet;

use model::{id::AppId, route::Target, size::Percent};

use super::*;

fn id(number: u128) -> DeploymentId {
    DeploymentId::sample(number)
}

/// Plans for the sample deployment of this number, on these routes.
fn planned(number: u128, routes: &[Route], pinned: bool, take: Take, hostnames: &[&str]) -> Plan {
    let [workspace, project, app] = ["acme", "shop", "web"].map(|slug| slug.parse().unwrap());
    let naming = Naming { workspace: &workspace, project: &project, app: &app, app_id: AppId::sample(1) };
    let environment = Environment::sample();
    let apex = "example.com".parse().unwrap();
    let ground =
        Ground { naming, environment: &environment, apex: &apex, routes, taken: &BTreeSet::new(), pinned };
    let deployment = Deployment::sample().numbered(number).with_branch("main");
    let hostnames: Vec<Hostname> = hostnames.iter().map(|name| name.parse().unwrap()).collect();
    plan(&ground, &deployment, &hostnames, take)
}

/// Every hostname with what answers it.
fn shown(plan: &Plan) -> Vec<String> {
    let show = |route: &Route| {
        let target = |target: &Target| format!("{}={}", target.deployment.as_u128() & 0xff, target.weight);
        let targets: Vec<String> = route.targets.iter().map(target).collect();
        let previous =
            route.previous.map(|id| format!(" previous {}", id.as_u128() & 0xff)).unwrap_or_default();
        format!("{} {} {}{previous}", route.follows, route.hostname, targets.join(" "))
    };
    let mut lines: Vec<String> = plan.put.iter().map(show).collect();
    lines.extend(plan.remove.iter().map(|hostname| format!("- {hostname}")));
    lines.sort();
    lines
}

#[test]
fn the_first_deployment_gets_every_hostname_at_once() {
    let plan = planned(1, &[], false, Take::Due, &["shop.example.org"]);
    assert_eq!(
        shown(&plan),
        [
            "branch shop-web-git-main-acme.example.com 1=100",
            "custom shop.example.org 1=100",
            "deployment shop-web-00000001-acme.example.com 1=100",
            "environment shop-web-production-acme.example.com 1=100",
            "live shop-web-acme.example.com 1=100",
        ]
    );
}

#[test]
fn the_next_one_takes_them_over_and_remembers_what_answered_before() {
    let first = planned(1, &[], false, Take::Due, &["shop.example.org"]).put;
    let plan = planned(2, &first, false, Take::Due, &[]);
    assert_eq!(
        shown(&plan),
        [
            "- shop.example.org",
            "branch shop-web-git-main-acme.example.com 2=100 previous 1",
            "deployment shop-web-00000002-acme.example.com 2=100",
            "environment shop-web-production-acme.example.com 2=100 previous 1",
            "live shop-web-acme.example.com 2=100 previous 1",
        ]
    );
}

#[test]
fn nothing_is_taken_from_a_newer_one_nor_from_a_chosen_one() {
    let second = planned(2, &[], false, Take::Due, &[]).put;
    let own = ["deployment shop-web-00000001-acme.example.com 1=100"];
    assert_eq!(shown(&planned(1, &second, false, Take::Due, &[])), own);
    let pinned = planned(3, &second, true, Take::Due, &[]);
    assert_eq!(
        shown(&pinned),
        [
            "branch shop-web-git-main-acme.example.com 3=100 previous 2",
            "deployment shop-web-00000003-acme.example.com 3=100",
        ]
    );
    let chosen = planned(1, &second, true, Take::Chosen, &[]);
    assert!(shown(&chosen).contains(&"live shop-web-acme.example.com 1=100 previous 2".to_owned()));
}

#[test]
fn a_canary_weighs_what_is_live_together_and_the_rest_at_once() {
    let first = planned(1, &[], false, Take::Due, &["shop.example.org"]).put;
    let share = Take::Share(Percent::new(25).unwrap(), id(1));
    let plan = planned(2, &first, false, share, &["shop.example.org"]);
    assert_eq!(
        shown(&plan),
        [
            "branch shop-web-git-main-acme.example.com 2=100 previous 1",
            "custom shop.example.org 2=25 1=75",
            "deployment shop-web-00000002-acme.example.com 2=100",
            "environment shop-web-production-acme.example.com 2=25 1=75",
            "live shop-web-acme.example.com 2=25 1=75",
        ]
    );
    assert_eq!(share_of(&plan.put, id(2)), Some(25));
    assert_eq!(share_of(&plan.put, id(3)), None);
}

#[test]
fn what_a_canary_replaces_is_what_answered_before_whatever_its_last_share_was() {
    let first = planned(1, &[], false, Take::Due, &[]).put;
    for share in [5, 50, 99] {
        let share = Take::Share(Percent::new(share).unwrap(), id(1));
        let weighed = planned(2, &first, false, share, &[]).put;
        let all = planned(2, &weighed, false, Take::Due, &[]);
        assert!(
            shown(&all).contains(&"live shop-web-acme.example.com 2=100 previous 1".to_owned()),
            "{share:?}"
        );
        let back = given_back(&weighed, id(2), id(1));
        assert!(back.iter().all(|route| route.targets == Targets::one(id(1)) && route.previous.is_none()));
    }
}

#[test]
fn what_a_route_leads_to_is_kept_and_what_it_only_remembers_is_not() {
    let first = planned(1, &[], false, Take::Due, &[]).put;
    let second = planned(2, &first, false, Take::Due, &[]).put;
    assert!(is_kept(&second, id(2)) && !is_kept(&second, id(1)));
    let own: Vec<Route> = second.into_iter().filter(|route| route.follows == Follows::Deployment).collect();
    assert!(!is_kept(&own, id(2)), "its own hostname keeps nothing running");
}
