//! A Lease that is watched, by an API server that has its moods.

use super::*;
use crate::cluster::Lease;

type Shown = BoxStream<'static, Result<Option<Lease>>>;

fn lease(holder: &str, revision: u64) -> Value {
    json!({
        "metadata": { "name": "krane-a", "resourceVersion": revision.to_string() },
        "spec": { "holderIdentity": holder },
    })
}

fn leases(items: &[Value], revision: u64) -> Reply {
    Reply::Ok(json!({ "metadata": { "resourceVersion": revision.to_string() }, "items": items }).to_string())
}

fn watched(server: &Server) -> Shown {
    kube(server, &KubeConfig::default()).watch_lease("krane", "krane-a")
}

/// The next state that is shown: who holds it, and its revision.
async fn next(shown: &mut Shown) -> Result<String, Fault> {
    let lease = shown.next().await.unwrap().map_err(|error| error.fault)?;
    let Some(Lease { holder, revision, .. }) = lease else { return Ok("not there".to_owned()) };
    Ok(format!("{} at {}", holder.as_deref().unwrap_or("nobody"), revision.unwrap()))
}

#[tokio::test(start_paused = true)]
async fn it_is_shown_as_it_is_and_as_it_becomes() {
    let server = Server::new(|uri| match uri {
        uri if uri.contains("watch=true") && uri.contains("resourceVersion=5") => Reply::OpenWatch(vec![
            event("MODIFIED", &lease("one", 6)),
            bookmark(7),
            event("MODIFIED", &lease("", 8)),
            event("DELETED", &lease("", 9)),
            event("ADDED", &lease("two", 10)),
        ]),
        _ => leases(&[lease("one", 4)], 5),
    });
    let mut shown = watched(&server);
    for expected in ["one at 4", "one at 6", "nobody at 8", "not there", "two at 10"] {
        assert_eq!(next(&mut shown).await.as_deref(), Ok(expected));
    }
    assert_eq!(server.count("fieldSelector=metadata.name%3Dkrane-a"), 2, "nothing else is asked for");
    assert_eq!(server.count("/namespaces/krane/leases"), 2);
}

/// The watch breaks off, is too old, or is over: the Lease is read again, with what happened meanwhile.
#[tokio::test(start_paused = true)]
async fn whatever_happens_to_the_watch_the_lease_is_read_again() {
    let gone = json!({ "type": "ERROR", "object": { "kind": "Status", "code": 410 } });
    let ends: [(Reply, Option<Fault>); 5] = [
        (Reply::Watch(vec![]), None),
        (Reply::Watch(vec![gone]), Some(Fault::Expired)),
        (Reply::Status(410), Some(Fault::Expired)),
        (Reply::Broken, Some(Fault::Unavailable)),
        // It is as good as dead: whoever holds the Lease renews it more often.
        (Reply::OpenWatch(vec![]), None),
    ];
    for (end, fault) in ends {
        let server = Server::new(move |uri| match uri {
            uri if uri.contains("resourceVersion=5") => end.clone(),
            uri if uri.contains("resourceVersion=7") => {
                Reply::OpenWatch(vec![event("MODIFIED", &lease("", 8))])
            }
            _ => Reply::FirstThen(
                Box::new(leases(&[lease("one", 4)], 5)),
                Box::new(leases(&[lease("two", 6)], 7)),
            ),
        });
        let mut shown = watched(&server);
        let began = Clock::system().instant();
        assert_eq!(next(&mut shown).await.as_deref(), Ok("one at 4"));
        if let Some(fault) = fault {
            assert_eq!(next(&mut shown).await, Err(fault));
        }
        assert_eq!(next(&mut shown).await.as_deref(), Ok("two at 6"));
        assert_eq!(next(&mut shown).await.as_deref(), Ok("nobody at 8"));
        assert!(began.elapsed() <= Duration::from_secs(11), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_lease_that_fails_is_opened_ever_more_seldom() {
    let failures: [fn(&str) -> Reply; 4] = [
        |_| Reply::Broken,
        |_| Reply::Status(403),
        |uri| if uri.contains("watch=true") { Reply::Status(403) } else { leases(&[], 5) },
        |uri| if uri.contains("watch=true") { Reply::Watch(vec![]) } else { leases(&[], 5) },
    ];
    for failure in failures {
        let server = Server::new(failure);
        let mut shown = watched(&server);
        let clock = Clock::system();
        let listen = async { while shown.next().await.is_some() {} };
        tokio::select! {
            () = listen => unreachable!("a watch goes on for ever"),
            () = clock.sleep(Duration::from_mins(5)) => {}
        }
        let asked = server.count("");
        assert!((30..300).contains(&asked), "{asked} times in five minutes");
    }
}
