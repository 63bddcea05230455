//! Which clusters a list of regions means.

use model::{
    cluster::{Cluster, Reachability, Region},
    environment::Regions,
    invalid::{Invalid, Problems},
    name::{Placement, RegionChoice, Shard},
};

/// The cluster of each region: in the shard that is named, else the one where the environment is `existing` already, else
/// `default`, else the only one. What takes nothing new is refused by its name, all of it at once.
///
/// A cluster that cannot be reached is no reason to refuse: what it is to run waits for it.
pub(crate) fn resolve(
    regions: &Regions,
    existing: &[Placement],
    known: &[Region],
    clusters: &[Cluster],
) -> Result<Vec<Placement>, Invalid> {
    let mut problems = Problems::new();
    let mut list = problems.field("regions");
    list.require(!regions.is_empty(), "there is none: name one here or in the environment's settings");
    let mut found = Vec::new();
    for (nth, choice) in regions.iter().enumerate() {
        match cluster_of(choice, existing, known, clusters) {
            Ok(cluster) => found.push(cluster),
            Err(problem) => list.index(nth).add(problem),
        }
    }
    let is_reached = |cluster: &&Cluster| cluster.reachability == Reachability::Reachable;
    if found.len() == regions.len() && !found.is_empty() {
        list.require(found.iter().any(is_reached), "none of them can be reached now");
    }
    problems.finish(found.into_iter().map(|cluster| cluster.placement.clone()).collect())
}

fn cluster_of<'a>(
    choice: &RegionChoice,
    existing: &[Placement],
    known: &[Region],
    clusters: &'a [Cluster],
) -> Result<&'a Cluster, String> {
    let RegionChoice { region, shard } = choice;
    let Some(state) = known.iter().find(|known| known.key == *region) else {
        return Err(format!("there is no region {region}"));
    };
    let here: Vec<&Cluster> = clusters.iter().filter(|cluster| cluster.placement.region == *region).collect();
    let own = existing.iter().find(|placement| placement.region == *region).map(|placement| &placement.shard);
    let default = Shard::default();
    let default = here.iter().any(|cluster| cluster.placement.shard == default).then_some(&default);
    let only = match here.as_slice() {
        [only] => Some(&only.placement.shard),
        _ => None,
    };
    let Some(shard) = shard.as_ref().or(own).or(default).or(only) else {
        let shards: Vec<&str> = here.iter().map(|cluster| cluster.placement.shard.as_str()).collect();
        return Err(format!("{region} has several shards: name one of {}", shards.join(", ")));
    };
    let Some(cluster) = here.iter().find(|cluster| cluster.placement.shard == *shard) else {
        return Err(format!("{region} has no shard {shard}"));
    };
    if !state.can_schedule || !cluster.can_schedule {
        return Err(format!("{region} takes nothing new"));
    }
    if cluster.reachability == Reachability::NeverSeen {
        return Err(format!("no agent was ever seen in {}", cluster.placement));
    }
    Ok(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::cluster::Epoch;

    fn cluster(placement: &str, reachability: Reachability) -> Cluster {
        Cluster {
            placement: placement.parse().unwrap(),
            can_schedule: true,
            reachability,
            uid: None,
            epoch: Epoch(0),
            lease_expires_at: None,
            agent_version: None,
            counts: vec![],
            held_back: vec![],
        }
    }

    fn world() -> (Vec<Region>, Vec<Cluster>) {
        let region = |key: &str| Region { key: key.parse().unwrap(), can_schedule: key != "aws/full" };
        let clusters = [
            ("aws/one:only", Reachability::Reachable),
            ("aws/two:default", Reachability::Reachable),
            ("aws/two:b", Reachability::Reachable),
            ("aws/many:a", Reachability::Reachable),
            ("aws/many:b", Reachability::Reachable),
            ("aws/away:default", Reachability::Unreachable),
            ("aws/new:default", Reachability::NeverSeen),
            ("aws/full:default", Reachability::Reachable),
        ];
        let regions =
            ["one", "two", "many", "away", "new", "full"].map(|name| region(&format!("aws/{name}")));
        (regions.into(), clusters.map(|(placement, seen)| cluster(placement, seen)).into())
    }

    fn check(regions: &[&str], existing: &[&str]) -> Result<String, String> {
        let (known, clusters) = world();
        let regions = Regions::new(regions.iter().map(|text| text.parse().unwrap()).collect()).unwrap();
        let existing: Vec<Placement> = existing.iter().map(|text| text.parse().unwrap()).collect();
        let found = resolve(&regions, &existing, &known, &clusters);
        found
            .map(|found| found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
            .map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn a_shard_is_the_named_the_own_the_default_or_the_only_one() {
        assert_eq!(check(&["aws/two:b"], &["aws/two:default"]).unwrap(), "aws/two:b");
        assert_eq!(check(&["aws/two"], &["aws/two:b"]).unwrap(), "aws/two:b");
        assert_eq!(check(&["aws/two", "aws/one"], &[]).unwrap(), "aws/two:default aws/one:only");
        assert_eq!(
            check(&["aws/many"], &[]).unwrap_err(),
            "regions[0]: aws/many has several shards: name one of a, b"
        );
    }

    #[test]
    fn what_takes_nothing_new_is_refused_by_name_and_all_at_once() {
        assert_eq!(
            check(&["aws/one", "aws/full", "aws/new", "aws/nowhere", "aws/two:c"], &[]).unwrap_err(),
            "regions[1]: aws/full takes nothing new; regions[2]: no agent was ever seen in aws/new:default; \
             regions[3]: there is no region aws/nowhere; regions[4]: aws/two has no shard c"
        );
        assert!(check(&[], &[]).unwrap_err().starts_with("regions: there is none"));
    }

    #[test]
    fn a_region_that_cannot_be_reached_is_waited_for_unless_it_is_the_only_one() {
        assert_eq!(check(&["aws/one", "aws/away"], &[]).unwrap(), "aws/one:only aws/away:default");
        assert_eq!(check(&["aws/away"], &[]).unwrap_err(), "regions: none of them can be reached now");
    }
}
