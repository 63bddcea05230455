//! A control plane that says a great deal, and nothing of what is there.

use std::time::Duration;

use harness::{
    audit::Audit,
    ground::{Ground, copy, fixed, now},
};
use model::event::{EventKind, Field};
use runtime::clock::{Clock, Timestamp};

use super::{
    elsewhere::keeps_its_lease,
    faults::is_cut,
    scene::{Numbers, Scene, acts, home, is_applied_from, is_told, sees},
};

/// First one that does not even know the place and gives neither list nor term, then one that does and has nothing for
/// it.
pub async fn an_empty_database(scene: &mut Scene) {
    let nothing = scene.ground.elsewhere(false).await;
    scene.door.lead_to(&nothing.url);
    for how in ["running", "restarted"] {
        if how == "restarted" {
            scene.kill().await;
            scene.start().await;
        }
        keeps_its_lease(&Audit::from_now(), &scene.instance).await;
        let seen = ["acting", "held_back{kind=\"deployment\"}"]
            .map(|name| scene.agent().metric(&format!("krane_{name}")));
        assert_eq!(seen, [0, 0], "it is given no term");
        scene.is_unharmed(&format!("empty database, {how}"), &[]).await;
    }
    let laid = scene.ground.elsewhere(true).await;
    meets(scene, Some(&laid), "empty database that knows the place", [0; 3], [0; 3]).await;
    scene.door.lead_to(&scene.ground.url);
    scene.is_in_step().await;
    scene.is_unharmed("the full database again", &[]).await;
    nothing.end().await;
    laid.end().await;
}

/// It has another deployment for the same place, which is made beside ours, and becomes an orphan in its turn.
pub async fn a_foreign_database(scene: &mut Scene) {
    let foreign = scene.ground.elsewhere(true).await;
    foreign.put_deployment(&foreign.names.deployment(7000), fixed(0)).await;
    meets(scene, Some(&foreign), "foreign database", [1, 0, 0], [0; 3]).await;
    scene.strangers += 1;
    scene.door.lead_to(&scene.ground.url);
    scene.is_in_step().await;
    scene.is_unharmed("our own database again", &[]).await;
    foreign.end().await;
}

/// An older copy is written over the very file, so that nothing but the agent's cursor tells that numbers were lost. An
/// agent that has just started has none: to it the history is what it was, and the objects are from its future.
pub async fn a_history_that_was_overtaken(mut scene: Scene) -> Scene {
    let before = scene.ground.store.position().await.expect("a position");
    scene.kill().await;
    scene.ground.stop_serving().await;
    let newer = scene.backups.path().join("newer.db");
    copy(&scene.ground.database(), &newer);
    scene.ground = scene.ground.turned_back(&scene.backup, Clock::system()).await;
    scene.door.lead_to(&scene.ground.url);
    scene.start().await;
    let kept = scene.kept();
    sees(scene.agent(), kept, scene.orphans(kept)).await;
    acts(scene.agent()).await;
    is_told(&scene.ground, kept, scene.orphans(kept)).await;
    scene.is_unharmed("history overtaken, unnoticed", &[]).await;
    let found = scene.ground.store.position().await.expect("a position");
    assert!(found.history == before.history && found.version < before.version, "{found:?} {before:?}");
    scene.kill().await;
    scene.ground = scene.ground.turned_back(&newer, Clock::system()).await;
    scene.door.lead_to(&scene.ground.url);
    scene.start().await;
    scene.is_in_step().await;

    // A history is doubted only when it is a minute old.
    let later = Timestamp::from_millis(now().0) + Duration::from_mins(2);
    scene.ground = scene.ground.turned_back(&scene.backup, Clock::simulated(later)).await;
    let found = scene.ground.store.position().await.expect("a position");
    assert_eq!(found.history, before.history, "it looks as if nothing had happened");
    assert!(found.version < before.version, "{found:?} {before:?}");
    meets(&mut scene, None, "history overtaken", kept, kept).await;
    let after = scene.ground.store.position().await.expect("a position");
    assert_ne!(after.history, before.history, "the agent's cursor told it");
    scene
}

/// The older copy in a file of its own: the history is another from the start. The list of it is cut once before it is
/// whole, while the agent still holds the old one.
pub async fn an_older_backup(scene: &mut Scene) {
    let home = home();
    copy(&scene.backup, &home.path().join("krane.db"));
    let (names, token) = (scene.ground.names.clone(), scene.ground.token.clone());
    let restored = Ground::on(names, home, token, Clock::system()).await;
    let kept = scene.kept();
    if kept[0] > 0 {
        let middle = scene.ground.names.deployment_id(u128::from(kept[0]) / 2 + 1);
        scene.door.lead_to_and_cut(&restored.url, &middle.to_string());
        is_cut(scene, 2).await;
        sees(scene.agent(), kept, scene.orphans(kept)).await;
        scene.is_unharmed("restored older backup, cut", &[]).await;
    }
    meets(scene, Some(&restored), "restored older backup", kept, kept).await;
    restored.end().await;
}

/// The agent, as it runs and once more from the start, follows another store, or our own as it is now. It holds what that
/// has, of which so much is ours; the rest stays and is reported.
async fn meets(scene: &mut Scene, other: Option<&Ground>, cause: &str, held: Numbers, ours: Numbers) {
    scene.door.lead_to(&other.unwrap_or(&scene.ground).url);
    let orphans = scene.orphans(ours);
    for how in ["running", "restarted"] {
        if how == "restarted" {
            scene.kill().await;
            scene.start().await;
        }
        sees(scene.agent(), held, orphans).await;
        is_applied_from(scene, other.unwrap_or(&scene.ground), held).await;
        acts(scene.agent()).await;
        is_told(other.unwrap_or(&scene.ground), held, orphans).await;
        scene.is_unharmed(&format!("{cause}, {how}"), &[]).await;
    }
    let events = other.unwrap_or(&scene.ground).events().await;
    let said = events.into_iter().filter(|event| event.kind == EventKind::ClusterOrphans);
    let said: Vec<String> = said.filter_map(|event| Some(event.get(Field::Count)?.to_string())).collect();
    let most = orphans[0].to_string();
    assert!(said.contains(&most), "{cause}: {most} orphans, and there are events of {said:?}");
}
