//! From times to figures: quantiles, medians over rounds, how they grow, and what is asserted of them.

use serde_json::{Value as Json, json};

/// How much longer than a bare stream a change may take.
const RATIO_MAX: f64 = 1.25;

/// From this size on it is asserted: below, what is measured is how one process hears of another's commit.
const RATIO_FROM: usize = 1000;

/// How many questions the database may be asked in a second, however many agents there are, and how much
/// that may differ from one size to another.
const QUERIES_MAX: f64 = 5.0;
const QUERIES_GROWTH_MAX: f64 = 0.5;

/// How long deliveries took after their change, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Delay {
    pub p50: f64,
    pub p99: f64,
    /// To the last of them.
    pub all: f64,
}

/// What was seen of one server.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub rounds: Vec<Delay>,
    pub cpu_us_per_change: f64,
    pub bytes_per_change: f64,
    pub kib_per_agent: f64,
}

/// One way of changing things at one size, with ours and the bare server side by side.
pub struct Scene {
    pub name: &'static str,
    pub agents: usize,
    pub ours: Seen,
    pub bare: Seen,
    /// Where it was measured.
    pub queries: Option<Queries>,
}

/// What the database was asked in a second, or since it counts.
#[derive(Debug, Clone, Copy)]
pub struct Queries {
    pub transactions: f64,
    pub statements: Option<f64>,
}

impl Queries {
    /// Statements, or transactions where the database does not count those.
    fn counted(&self) -> f64 {
        self.statements.unwrap_or(self.transactions)
    }
}

impl Delay {
    /// Of the times of all deliveries, in microseconds.
    pub fn of(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let at = |share: usize| times[(times.len() - 1) * share / 100] as f64 / 1000.0;
        Self { p50: at(50), p99: at(99), all: at(100) }
    }
}

impl Seen {
    fn median(&self, of: impl Fn(&Delay) -> f64) -> f64 {
        self.quantile(of, 0.5)
    }

    fn quantile(&self, of: impl Fn(&Delay) -> f64, share: f64) -> f64 {
        let mut values: Vec<f64> = self.rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[((values.len() - 1) as f64 * share).round() as usize]
    }

    /// How far the middle half of the rounds lies apart, in percent of their median.
    fn spread(&self) -> f64 {
        let p99 = |delay: &Delay| delay.p99;
        (self.quantile(p99, 0.75) - self.quantile(p99, 0.25)) / self.median(p99) * 100.0
    }
}

/// Every row of the result.
pub fn rows(scenes: &[Scene]) -> Vec<Json> {
    let mut rows: Vec<Json> = scenes.iter().flat_map(Scene::rows).collect();
    for name in ["broadcast", "spread"] {
        let of: Vec<&Scene> = scenes.iter().filter(|scene| scene.name == name).collect();
        rows.extend(growth(name, "p99_ms", &of, |scene| scene.ours.median(|delay| delay.p99)));
        rows.extend(growth(name, "cpu_us_per_change", &of, |scene| scene.ours.cpu_us_per_change));
        if name == "broadcast" {
            rows.extend(growth(name, "kib_per_agent", &of, |scene| scene.ours.kib_per_agent));
        }
    }
    // One agent does not beat every second; from a hundred on there is always one that does.
    let crowds = scenes.iter().filter(|scene| scene.agents > 1);
    let queries: Vec<f64> = crowds.filter_map(|scene| Some(scene.queries?.counted())).collect();
    if let (Some(least), Some(most)) =
        (queries.iter().copied().reduce(f64::min), queries.iter().copied().reduce(f64::max))
    {
        let (grown, goal) = (most - least, format!("≤ {QUERIES_GROWTH_MAX}"));
        let ok = grown <= QUERIES_GROWTH_MAX;
        rows.push(row("queries_growth", "all sizes", grown, "1/s", Some(&goal), Some(ok)));
    }
    rows
}

impl Scene {
    fn rows(&self) -> Vec<Json> {
        let size = format!("{}, {} agents", self.name, self.agents);
        let told = |measure: &str, value: f64, unit: &str| row(measure, &size, value, unit, None, None);
        let p99 = |delay: &Delay| delay.p99;
        let ratio = self.ours.median(p99) / self.bare.median(p99);
        let asserted = self.agents >= RATIO_FROM;
        let goal = format!("≤ {RATIO_MAX}");
        let mut rows = vec![
            told("p50_ms", self.ours.median(|delay| delay.p50), "ms"),
            told("p99_ms", self.ours.median(p99), "ms"),
            told("all_ms", self.ours.median(|delay| delay.all), "ms"),
            told("p99_spread", self.ours.spread(), "%"),
            told("bare_p50_ms", self.bare.median(|delay| delay.p50), "ms"),
            told("bare_p99_ms", self.bare.median(p99), "ms"),
            told("bare_p99_spread", self.bare.spread(), "%"),
            row(
                "p99_vs_bare",
                &size,
                ratio,
                "×",
                asserted.then_some(&*goal),
                asserted.then_some(ratio <= RATIO_MAX),
            ),
            told("bytes_per_change", self.ours.bytes_per_change, "bytes"),
            told("bare_bytes_per_change", self.bare.bytes_per_change, "bytes"),
            told("cpu_us_per_change", self.ours.cpu_us_per_change, "µs"),
            told("bare_cpu_us_per_change", self.bare.cpu_us_per_change, "µs"),
        ];
        // One agent's memory is lost in what the process holds anyway, and beside many places what they are in the
        // image and its reading cannot be told from what their agents are.
        if self.agents > 1 && self.name == "broadcast" {
            rows.push(told("kib_per_agent", self.ours.kib_per_agent, "KiB"));
            rows.push(told("bare_kib_per_agent", self.bare.kib_per_agent, "KiB"));
        }
        if let Some(queries) = self.queries {
            let (asked, goal) = (queries.counted(), format!("≤ {QUERIES_MAX}"));
            let ok = Some(asked <= QUERIES_MAX);
            rows.push(row("queries_per_second", &size, asked, "1/s", Some(&goal), ok));
            rows.push(told("transactions_per_second", queries.transactions, "1/s"));
        }
        rows
    }
}

/// How a figure grows from the second size to the last: with the power of N that this is. The first has no
/// crowd.
fn growth(name: &str, measure: &str, scenes: &[&Scene], of: impl Fn(&Scene) -> f64) -> Option<Json> {
    let [_, first, .., last] = scenes else { return None };
    let power = (of(last) / of(first)).ln() / (last.agents as f64 / first.agents as f64).ln();
    let size = format!("{name}, {measure}, {} to {}", first.agents, last.agents);
    Some(row("slope", &size, power, "power of N", None, None))
}

fn row(measure: &str, size: &str, value: f64, unit: &str, goal: Option<&str>, ok: Option<bool>) -> Json {
    let value = (value * 100.0).round() / 100.0;
    json!({ "measure": measure, "size": size, "value": value, "unit": unit, "goal": goal, "ok": ok })
}
