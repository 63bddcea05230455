//! The table of what may be deleted, case by case, and what no case may ever do.

use model::{
    id::{DeploymentId, EnvironmentId, HistoryId},
    kind::Kind,
};
use proptest::prelude::*;

use super::*;
use crate::{
    labels::{Belonging, Owner, Subject},
    object::{Body, Ref, Type, Uid},
};

const HISTORY: HistoryId = HistoryId::sample(1);
const OTHER: HistoryId = HistoryId::sample(2);

fn ground(here: &Placement, floor: u64, since: u64) -> Ground<'_> {
    let listed_at = Position {
        history: HISTORY,
        version: Version::new(1000),
        floor: Version::new(floor),
        since: Version::new(since),
    };
    Ground { here, listed_at }
}

fn live(history: Option<HistoryId>, version: Option<u64>, region: &str, shard: &str) -> Arc<Live> {
    Arc::new(Live {
        object: Ref::new(Type::ReplicaSet, "ns", "dep-1"),
        uid: Uid("u".into()),
        revision: 1,
        owner: Some(Owner {
            kind: Kind::Deployment,
            subject: Subject::Deployment(DeploymentId::sample(1)),
            belonging: Belonging::default(),
            shard: Some(shard.parse().unwrap()),
        }),
        stamp: Stamp {
            spec_hash: None,
            history,
            region: region.parse().ok(),
            version: version.map(Version::new),
            change: None,
        },
        is_deleting: false,
        is_scaled_by_us: false,
        body: Body::Text("{}".into()),
    })
}

fn goes(standing: impl Into<Option<Standing<Held<()>>>>, live: Arc<Live>, floor: u64, since: u64) -> bool {
    let here = Placement::sample();
    match decide(standing.into().as_ref(), &[live], ground(&here, floor, since)) {
        Decision::Delete { objects, .. } | Decision::DeleteAbsent { objects, .. } => !objects.is_empty(),
        Decision::Leave { orphans } => {
            assert_eq!(orphans, 1);
            false
        }
        Decision::Make { .. } | Decision::Park { .. } => false,
    }
}

fn gone(version: u64) -> Standing<Held<()>> {
    Standing::Gone { version: Version::new(version), state: Ok(()) }
}

fn absent() -> Standing<Held<()>> {
    Standing::Absent { version: Version::new(1), state: Ok(()) }
}

#[test]
fn a_tombstone_deletes_what_was_applied_before_it() {
    let ours = |version| live(Some(HISTORY), Some(version), "aws/us-east-1", "default");
    assert!(goes(gone(10), ours(10), 0, 0));
    assert!(goes(gone(10), ours(9), 0, 0));
    assert!(!goes(gone(10), ours(11), 0, 0), "an old tombstone is no proof for a newer object");
}

#[test]
fn a_tombstone_of_another_history_counts_only_if_the_present_one_gave_it_out() {
    let theirs = || live(Some(OTHER), Some(5), "aws/us-east-1", "default");
    assert!(!goes(gone(10), theirs(), 0, 10));
    assert!(goes(gone(11), theirs(), 0, 10));
    let unstamped = live(None, None, "aws/us-east-1", "default");
    assert!(!goes(gone(10), unstamped.clone(), 0, 10));
    assert!(goes(gone(11), unstamped, 0, 10));
}

#[test]
fn absence_deletes_only_what_must_have_been_pruned() {
    let at = |history, version, region, shard| live(history, version, region, shard);
    for standing in [Some(absent()), None] {
        assert!(goes(standing.clone(), at(Some(HISTORY), Some(9), "aws/us-east-1", "default"), 10, 0));
        assert!(!goes(standing.clone(), at(Some(HISTORY), Some(10), "aws/us-east-1", "default"), 10, 0));
        assert!(!goes(standing.clone(), at(Some(OTHER), Some(9), "aws/us-east-1", "default"), 10, 0));
        assert!(!goes(standing.clone(), at(Some(HISTORY), Some(9), "aws/us-east-2", "default"), 10, 0));
        assert!(!goes(standing.clone(), at(Some(HISTORY), Some(9), "aws/us-east-1", "b"), 10, 0));
        assert!(!goes(standing.clone(), at(Some(HISTORY), None, "aws/us-east-1", "default"), 10, 0));
        assert!(!goes(standing, at(None, Some(9), "aws/us-east-1", "default"), 10, 0));
    }
}

#[test]
fn another_shards_object_is_left_even_with_a_tombstone() {
    assert!(!goes(gone(10), live(Some(HISTORY), Some(1), "aws/us-east-1", "b"), 0, 0));
}

#[test]
fn what_cannot_be_read_is_parked_and_nothing_of_it_goes() {
    let problems = Arc::new(Invalid::one("image", "is no image"));
    let standing = Standing::Known { version: Version::new(3), state: Err::<(), _>(problems.clone()) };
    let here = Placement::sample();
    let objects = [live(Some(HISTORY), Some(1), "aws/us-east-1", "default")];
    let decision = decide(Some(&standing), &objects, ground(&here, 10, 0));
    assert_eq!(decision, Decision::Park { version: Version::new(3), problems });
}

fn keys(count: usize) -> BTreeSet<Key> {
    (0..count).map(|number| Key::new(format!("dep_{number}"))).collect()
}

#[test]
fn a_fifth_may_go_and_more_waits_for_the_operator_who_names_the_list() {
    assert_eq!(judge(&keys(0), 0, None), Verdict::Go);
    assert_eq!(judge(&keys(1), 5, None), Verdict::Go);
    assert_eq!(judge(&keys(2), 11, None), Verdict::Go);
    for (absent, all) in [(1, 1), (2, 5), (3, 11), (201, 1000), (1000, 1000)] {
        let absent = keys(absent);
        let hash = list_hash(&absent);
        assert_eq!(judge(&absent, all, None), Verdict::Wait { hash, count: absent.len() as u64 });
        assert_eq!(judge(&absent, all, Some(hash)), Verdict::Go);
        let another = list_hash(&keys(absent.len() + 1));
        assert_ne!(judge(&absent, all, Some(another)), Verdict::Go);
    }
}

proptest! {
    /// Whatever an object says of itself, absence alone never deletes what another history, region or shard made.
    #[test]
    fn nothing_goes_that_is_not_ours(
        history in prop_oneof![Just(None), Just(Some(HISTORY)), Just(Some(OTHER))],
        version in proptest::option::of(0_u64..20),
        is_here: bool,
        is_ours: bool,
        floor in 0_u64..20,
    ) {
        let region = if is_here { "aws/us-east-1" } else { "aws/eu-1" };
        let shard = if is_ours { "default" } else { "other" };
        let goes = goes(absent(), live(history, version, region, shard), floor, 0);
        let may = history == Some(HISTORY) && is_here && is_ours && version.is_some_and(|version| version < floor);
        prop_assert_eq!(goes, may);
    }
}

/// What the things of an environment share, made from a history and in a region.
fn shared(history: HistoryId, region: &str, shard: &str, environment: Option<EnvironmentId>) -> Arc<Live> {
    let mut live = Arc::unwrap_or_clone(live(Some(history), None, region, shard));
    live.object = Ref::new(Type::CiliumNetworkPolicy, "ns", "sentinel-ingress");
    let owner = live.owner.as_mut().unwrap();
    owner.subject = Subject::Environment;
    owner.belonging.environment = environment;
    Arc::new(live)
}

#[test]
fn what_is_shared_goes_with_the_last_that_needed_it_and_says_itself_that_it_is_ours() {
    let here = Placement::sample();
    let (region, shard) = (here.region.to_string(), here.shard.to_string());
    let [mine, theirs] = [1, 2].map(|number| Some(EnvironmentId::sample(number)));
    let ground = ground(&here, 500, 0);
    let goes = |object: &Arc<Live>, used: &[Option<EnvironmentId>], is_proven| {
        let used = used.iter().copied().collect();
        !left(vec![object.clone()], &used, ground, is_proven).is_empty()
    };
    let ours = shared(HISTORY, &region, &shard, mine);
    assert!(goes(&ours, &[], false) && goes(&ours, &[theirs], false));
    assert!(!goes(&ours, &[mine], true), "somebody needs it, or has something there");
    assert!(!goes(&ours, &[theirs, None], true), "somebody may need it");
    let nameless = shared(HISTORY, &region, &shard, None);
    assert!(!goes(&nameless, &[], true), "it does not say whose it is");
    let elsewhere = shared(HISTORY, &region, "another", mine);
    assert!(!goes(&elsewhere, &[], true), "it is another shard's");
    // Without having seen the last of them go, it has to be of our making.
    let restored = shared(OTHER, &region, &shard, mine);
    assert!(!goes(&restored, &[], false) && goes(&restored, &[], true));
    let moved = shared(HISTORY, "gcp/europe-west4", &shard, mine);
    assert!(!goes(&moved, &[], false) && goes(&moved, &[], true));
}
