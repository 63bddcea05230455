//! A store with two regions whose agents do at once what they are told, and replicas that run workflows on it.
#![allow(dead_code, reason = "each test uses what it needs")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use control::{
    config::DeployConfig,
    deploy::{self, NewDeployment, Overrides, Refused},
    event::{Draft, Events},
    workflow::{self, Points},
};
use model::{
    cluster::{Epoch, Sequence},
    deployment::{Deployment, Git, Progress, Status},
    environment::{Environment, Regions, Settings},
    event::EventKind,
    id::{DeploymentId, EnvironmentId},
    name::{Hostname, Placement},
    project::{App, Project, Workspace},
    route::{Follows, Route, Target},
    time::Millis,
    traffic::{Blame, StatusClass, Sums},
    watch::Version,
};
use runtime::{
    clock::{Clock, Timestamp},
    random::Random,
    shutdown::Tasks,
};
use store::{Cause, Config, Store, Surroundings, Tail, Topic, TrafficReport, Write};

use super::robot;

/// The regions, each with the one shard.
pub const PLACES: [&str; 2] = ["aws/east:default", "aws/west:default"];

/// What a sentinel carried since it started.
type Told = BTreeMap<(Hostname, DeploymentId), Sums>;

pub struct Scene {
    pub store: Store,
    pub tail: Tail,
    pub clock: Clock,
    pub config: DeployConfig,
    random: Random,
    tasks: Tasks,
    epochs: Arc<Mutex<BTreeMap<Placement, Epoch>>>,
    told: Mutex<(u64, Told)>,
    _home: Option<tempfile::TempDir>,
}

impl Scene {
    /// On a file of its own, in time that is the test's.
    pub async fn paused() -> Scene {
        let home = tempfile::tempdir().unwrap();
        let config = Config::sqlite(home.path().join("krane.db"));
        let clock = Clock::simulated(Timestamp::from_millis(1_750_000_000_000));
        Scene::lay(&config, clock, DeployConfig::default(), Some(home)).await
    }

    pub async fn lay(
        database: &Config,
        clock: Clock,
        config: DeployConfig,
        home: Option<tempfile::TempDir>,
    ) -> Scene {
        let (tasks, random) = (Tasks::new(), Random::seeded(11));
        let surroundings =
            Surroundings { clock: clock.clone(), random: random.clone(), tasks: tasks.clone() };
        let store = Store::open(database, surroundings).await.unwrap();
        let tail = Tail::start(&store, &tasks).await.unwrap();
        let scene = Scene {
            store,
            tail,
            clock,
            config,
            random,
            tasks,
            epochs: Arc::default(),
            told: Mutex::default(),
            _home: home,
        };
        scene.lay_tree().await;
        for place in PLACES {
            scene.begin_term(place).await;
            robot::start(&scene, place.parse().unwrap(), &scene.tasks);
        }
        scene
    }

    async fn lay_tree(&self) {
        let (at, cause) = (self.now(), Cause { change: None, at: self.now() });
        let mut write = self.store.begin().await.unwrap();
        write.put_workspace(&Workspace::sample(), at).await.unwrap();
        write.put_project(&Project::sample(), at).await.unwrap();
        write.put_app(&App::sample(), at).await.unwrap();
        let regions = PLACES.iter().map(|place| place.parse::<Placement>().unwrap().region);
        let choices = regions.clone().map(|region| model::name::RegionChoice { region, shard: None });
        let settings = Settings { regions: Regions::new(choices.collect()).unwrap(), ..Settings::default() };
        write.put_environment(&Environment::sample().with_settings(settings), &cause).await.unwrap();
        for place in PLACES {
            let place: Placement = place.parse().unwrap();
            write.put_region(&place.region, true, at).await.unwrap();
            write.put_cluster(&place, &cause).await.unwrap();
        }
        write.commit().await.unwrap();
    }

    /// The agent of a place is heard from now on, for a year.
    pub async fn begin_term(&self, place: &str) {
        let place: Placement = place.parse().unwrap();
        let mut write = self.store.begin().await.unwrap();
        let (uid, instance) = (format!("uid-{place}").parse().unwrap(), "robot".parse().unwrap());
        let year = Duration::from_hours(24 * 365);
        let begun = write.begin_term(&place, &uid, &instance, year).await.unwrap();
        write.commit().await.unwrap();
        let store::Begun::Term { epoch, .. } = begun else { panic!("{begun:?}") };
        self.epochs.lock().unwrap().insert(place, epoch);
    }

    /// The agent of a place falls silent: what is told in its name from now on counts for nothing.
    pub async fn silence(&self, place: &str) {
        let place: Placement = place.parse().unwrap();
        let renewal = store::Renewal {
            placement: place.clone(),
            epoch: Some(self.epoch(&place)),
            ttl: Duration::from_millis(1),
            agent_version: None,
            counts: vec![],
            held_back: vec![],
        };
        self.epochs.lock().unwrap().insert(place, Epoch(0));
        self.write(async |write| write.renew_leases(std::slice::from_ref(&renewal)).await.map(drop)).await;
        self.clock.sleep(Duration::from_millis(20)).await;
        let mut write = self.store.begin().await.unwrap();
        let expired = write.expire_leases(Duration::ZERO).await.unwrap();
        write.commit().await.unwrap();
        assert_eq!(expired.len(), 1, "a lease has expired");
    }

    pub fn epoch(&self, place: &Placement) -> Epoch {
        self.epochs.lock().unwrap()[place]
    }

    pub fn epochs(&self) -> Arc<Mutex<BTreeMap<Placement, Epoch>>> {
        self.epochs.clone()
    }

    /// A replica that runs workflows; dropped, it is as if it had been ended by SIGKILL.
    pub fn replica(&self, points: Points) -> Tasks {
        let tasks = Tasks::new();
        let key = "k1".parse().unwrap();
        let Scene { store, tail, config, clock, random, .. } = self;
        workflow::start(store, tail, config, &key, clock, random, points, &tasks);
        tasks
    }

    pub fn now(&self) -> Millis {
        Millis(self.clock.now().millis())
    }

    pub fn draft(&self) -> Draft {
        Events::new(&self.clock, &self.random).draft()
    }

    /// A write of the test's own.
    pub async fn write<T>(&self, rows: impl AsyncFn(&mut Write) -> store::Result<T>) -> T {
        let mut write = self.store.begin().await.unwrap();
        let done = rows(&mut write).await.unwrap();
        write.commit().await.unwrap();
        done
    }

    /// What a user asks for, in one commit; refused, nothing has happened.
    pub async fn ask<T>(
        &self,
        verb: impl AsyncFn(&mut Write, &Draft) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let draft = self.draft();
        let mut write = self.store.begin().await.unwrap();
        let answer = verb(&mut write, &draft).await?;
        write.commit().await.unwrap();
        Ok(answer)
    }

    /// A deployment of `krane/<image>` with what is said otherwise.
    pub async fn create(&self, image: &str, overrides: Overrides) -> Result<Deployment, Refused> {
        let new = NewDeployment {
            environment: EnvironmentId::sample(1),
            image: format!("krane/{image}").parse().unwrap(),
            git: Git { branch: Some("main".parse().unwrap()), ..Git::default() },
            overrides,
        };
        self.ask(async |write, draft| deploy::create(write, draft, &new).await).await
    }

    /// A deployment that is to become ready.
    pub async fn ready(&self, image: &str) -> DeploymentId {
        let id = self.create(image, Overrides::default()).await.unwrap().id;
        self.until(id, Status::Ready).await;
        id
    }

    pub async fn progress(&self, id: DeploymentId) -> Progress {
        self.store.deployment(id).await.unwrap().1
    }

    /// Waits until a deployment is so, woken by whatever happens.
    pub async fn until(&self, id: DeploymentId, status: Status) -> Progress {
        let mut seen = None;
        self.wait(&format!("{id} is {status}"), async || {
            let progress = self.progress(id).await;
            let is_so = progress.status == status;
            seen = Some(progress);
            is_so
        })
        .await;
        seen.unwrap()
    }

    /// Waits until something is so, for a day of paused time or half a minute of real.
    pub async fn wait(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        let mut events =
            self.tail.subscribe(vec![Topic::Events], self.tail.position().cursor()).await.unwrap();
        for _ in 0..3000 {
            if is_so().await {
                return;
            }
            tokio::select! {
                _news = events.next() => {}
                () = self.clock.sleep(self.config.claim.min(Duration::from_secs(10)) / 20) => {}
            }
        }
        let workflows = self.store.open_workflows(None, 100).await.unwrap();
        panic!("never: {what}; open: {workflows:#?}");
    }

    pub async fn routes(&self) -> Vec<Route> {
        self.store.routes(EnvironmentId::sample(1), None, 1000).await.unwrap()
    }

    /// What the live hostname leads to, with weights.
    pub async fn live(&self) -> Vec<(DeploymentId, u32)> {
        let routes = self.routes().await;
        let live = routes.iter().find(|route| route.follows == Follows::Live);
        let target = |target: &Target| (target.deployment, target.weight);
        live.map(|route| route.targets.iter().map(target).collect()).unwrap_or_default()
    }

    /// How many choices of what is live are under way.
    pub async fn switches(&self) -> usize {
        let open = self.store.open_workflows(None, 100).await.unwrap();
        open.iter().filter(|open| open.workflow.kind == model::workflow::WorkflowKind::Switch).count()
    }

    /// How often a canary was found to have too little traffic.
    pub async fn pauses(&self) -> usize {
        let judged = self.events(EventKind::CanaryJudged).await;
        let is_pause = |event: &&model::event::Event| {
            event.get(model::event::Field::Verdict).is_some_and(|verdict| verdict.as_str() == "wait")
        };
        judged.iter().filter(is_pause).count()
    }

    /// The kinds of all events so far.
    pub async fn events(&self, of: EventKind) -> Vec<model::event::Event> {
        let events = self.store.events(Version::ZERO, 10_000).await.unwrap();
        events.into_iter().map(|(_, event)| event).filter(|event| event.kind == of).collect()
    }

    /// Requests that a sentinel carried: so many good answers and bad ones, each taking so long.
    pub async fn carry(&self, to: DeploymentId, good: u64, bad: u64, took: Duration) {
        let live = self.routes().await.into_iter().find(|route| route.follows == Follows::Live).unwrap();
        let class = |digit| StatusClass::new(digit).unwrap();
        let report = {
            let mut told = self.told.lock().unwrap();
            told.0 += 1;
            let sums = told.1.entry((live.hostname, to)).or_default();
            *sums.counts.entry((Blame::None, class(2))).or_default() += good;
            *sums.counts.entry((Blame::Upstream, class(5))).or_default() += bad;
            (0..good + bad).for_each(|_| sums.latency.record(took));
            TrafficReport {
                environment: EnvironmentId::sample(1),
                placement: PLACES[0].parse().unwrap(),
                start: "life".parse().unwrap(),
                sequence: Sequence(told.0),
                sums: told.1.clone(),
                samples: vec![],
            }
        };
        let at = self.now();
        self.write(async |write| write.take_traffic(std::slice::from_ref(&report), at).await.map(drop)).await;
    }
}
