//! One agent that follows its deployments, step by step, for tests that look at each.

use std::collections::BTreeSet;

use model::{
    id::HistoryId,
    name::Placement,
    watch::{Cursor, Event, Reader, Standing},
};
use runtime::{clock::Clock, random::Random};
use tokio::time::timeout;
use wire::{
    client::Control,
    deployment::Desired,
    follow::{Deployments, Follow, Held, Message, Source as _, Step},
};

use super::{
    plane::PATIENCE,
    reader::{self, Asked},
    transcript::{Overheard, Told, Transcript, tell},
};

/// An agent's table of deployments, and how it came about.
pub struct Follower {
    follow: Follow<Overheard<Deployments>>,
    transcript: Transcript,
}

impl Follower {
    pub fn new(control: Control, place: &Placement) -> Self {
        let asked = Asked::Deployments(place.clone());
        let transcript = Transcript::new(move |key| asked.row(key));
        let source = Overheard::new(Deployments(control), &transcript);
        let follow = Follow::new(source, reader::PATIENCE, Clock::system(), Random::system());
        Self { follow, transcript }
    }

    /// Goes on until it is so.
    pub async fn until(&mut self, what: &str, is_so: impl Fn(&Reader<Held<Desired>>) -> bool) {
        let going = async {
            while !is_so(self.follow.reader()) {
                let step = self.follow.step().await;
                assert!(!matches!(step, Step::OutOfStep { .. }), "{step:?}");
            }
        };
        let there = timeout(PATIENCE, going).await;
        assert!(there.is_ok(), "it never came to {what}: {:?}, {:?}", self.follow, self.heard());
    }

    /// Goes on until it holds these live deployments, and nothing else.
    pub async fn until_it_knows(&mut self, numbers: &[u128]) {
        let wanted: BTreeSet<String> =
            numbers.iter().map(|number| model::id::DeploymentId::sample(*number).to_string()).collect();
        self.until(&format!("know {numbers:?}"), |reader| known(reader) == wanted).await;
    }

    pub fn cursor(&self) -> Cursor {
        self.follow.reader().cursor()
    }

    pub fn history(&self) -> HistoryId {
        self.cursor().history.expect("a stream has said its history")
    }

    pub fn standing(&self, number: u128) -> &'static str {
        let key = wire::deployment::key(model::id::DeploymentId::sample(number));
        match self.follow.reader().get(&key) {
            Some(Standing::Known { .. }) => "known",
            Some(Standing::Gone { .. }) => "gone",
            Some(Standing::Absent { .. }) => "absent",
            None => "never heard of",
        }
    }

    pub fn heard(&self) -> Told {
        tell(&self.transcript.all())
    }
}

fn known(reader: &Reader<Held<Desired>>) -> BTreeSet<String> {
    let known = reader.iter().filter(|(_, standing)| matches!(standing, Standing::Known { .. }));
    known.map(|(key, _)| key.to_string()).collect()
}

/// What a stream from a cursor begins with: the events up to its first bookmark.
pub async fn beginning(control: &Control, cursor: Cursor) -> Vec<Event<Held<Desired>>> {
    use futures_util::StreamExt as _;
    let reading = async {
        let mut stream = Deployments(control.clone()).open(cursor).await.expect("a stream opens");
        let mut events = Vec::new();
        loop {
            let message = stream.next().await.expect("it goes on").expect("it is whole");
            let Message::Event(event) = message else { panic!("it cannot be read") };
            let is_bookmark = matches!(event, Event::InitDone(_) | Event::Alive(_));
            events.push(event);
            if is_bookmark {
                return events;
            }
        }
    };
    timeout(PATIENCE, reading).await.expect("a bookmark comes soon")
}
