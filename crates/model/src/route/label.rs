//! The hostnames we give: one label under the apex, made of slugs.
//!
//! ```text
//! <project>-<app>-<workspace>                      live
//! <project>-<app>-<environment>-<workspace>
//! <project>-<app>-git-<branch>-<workspace>
//! <project>-<app>-<end of its id>-<workspace>      one deployment
//! ```
//!
//! One that is taken, or longer than a label may be, is cut and ends in a mark: hex digits of the app id's hash.

use crate::{
    id::{AppId, DeploymentId},
    limits,
    name::{Branch, DnsLabel, Slug},
};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// Whose hostnames are named.
#[derive(Debug, Clone, Copy)]
pub struct Naming<'a> {
    pub workspace: &'a Slug,
    pub project: &'a Slug,
    pub app: &'a Slug,
    pub app_id: AppId,
}

/// What a hostname stands for.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    Live,
    Environment(&'a Slug),
    Branch(&'a Branch),
    Deployment(DeploymentId),
}

/// Characters of a deployment's id that end in its hostname.
const ID_CHARS: usize = 8;

/// What a marked label has room for besides its mark and the hyphen before it.
const MARKED_CHARS: usize = limits::LABEL_CHARS - 1 - limits::HOSTNAME_HASH_CHARS;

impl Naming<'_> {
    /// The labels to try, the best first. Taken ones are left out by whoever knows which those are.
    pub fn candidates(&self, subject: Subject<'_>) -> Vec<DnsLabel> {
        let marked = self.marked(subject);
        match self.plain(subject) {
            Some(plain) => vec![plain, marked],
            None => vec![marked],
        }
    }

    /// All of it, if it fits into a label.
    fn plain(&self, subject: Subject<'_>) -> Option<DnsLabel> {
        let text = [self.head(), distinction(subject), format!("-{}", self.workspace)].concat();
        (text.len() <= limits::LABEL_CHARS).then(|| label(&text))
    }

    /// As much of it as fits before the mark. What tells the subjects of one app apart is kept whole: the mark is
    /// the same for all of them.
    fn marked(&self, subject: Subject<'_>) -> DnsLabel {
        let distinction = distinction(subject);
        let head = self.head();
        let head = cut(&head, MARKED_CHARS - distinction.len());
        let room = MARKED_CHARS - distinction.len() - head.len();
        let workspace = format!("-{}", self.workspace);
        let workspace = cut(&workspace, room);
        label(&format!("{head}{distinction}{workspace}-{}", mark(&self.app_id.to_string())))
    }

    fn head(&self) -> String {
        format!("{}-{}", self.project, self.app)
    }
}

/// The part between app and workspace, with its hyphen: never longer than a hyphen and a slug.
fn distinction(subject: Subject<'_>) -> String {
    match subject {
        Subject::Live => String::new(),
        Subject::Environment(slug) => format!("-{slug}"),
        Subject::Branch(branch) => format!("-git-{}", branch_part(branch)),
        Subject::Deployment(id) => {
            let id = id.to_string();
            format!("-{}", &id[id.len() - ID_CHARS..])
        }
    }
}

/// A branch in the letters of a label. If that loses more than its marks, it ends in the branch's own hash, so that
/// two branches do not become one.
fn branch_part(branch: &Branch) -> String {
    let max = limits::SLUG_CHARS - "git-".len();
    let branch = branch.as_str();
    let mut part = String::new();
    for character in branch.to_lowercase().chars() {
        match character {
            'a'..='z' | '0'..='9' => part.push(character),
            _ if part.is_empty() || part.ends_with('-') => {}
            _ => part.push('-'),
        }
    }
    let part = part.trim_end_matches('-');
    if branch.is_ascii() && !part.is_empty() && part.len() <= max {
        return part.to_owned();
    }
    let kept = cut(part, max - 1 - limits::HOSTNAME_HASH_CHARS);
    let joint = if kept.is_empty() { "" } else { "-" };
    format!("{kept}{joint}{}", mark(branch))
}

/// At most this many characters of an ASCII text, without hyphens at the end.
fn cut(text: &str, max: usize) -> &str {
    text[..text.len().min(max)].trim_end_matches('-')
}

fn mark(text: &str) -> String {
    let mut hex = String::new();
    for byte in &Sha256::digest(text)[..limits::HOSTNAME_HASH_CHARS / 2] {
        write!(hex, "{byte:02x}").expect("a string takes everything");
    }
    hex
}

fn label(text: &str) -> DnsLabel {
    text.parse().expect("slugs, digits and inner hyphens, no longer than a label")
}

const _: () = {
    assert!(limits::HOSTNAME_HASH_CHARS.is_multiple_of(2), "a mark is whole bytes");
    assert!(ID_CHARS <= limits::SLUG_CHARS);
    // However long what tells them apart is, something of the project stays in front of it.
    assert!(1 + limits::SLUG_CHARS < MARKED_CHARS);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::AppId;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn labels(slugs: [&str; 3], subject: Subject<'_>) -> Vec<String> {
        let [project, app, workspace] = slugs.map(|slug| slug.parse::<Slug>().unwrap());
        let app_id = AppId::sample(1);
        let naming = Naming { workspace: &workspace, project: &project, app: &app, app_id };
        naming.candidates(subject).iter().map(ToString::to_string).collect()
    }

    fn check(slugs: [&str; 3], subject: Subject<'_>, expected: &Expect) {
        expected.assert_eq(&labels(slugs, subject).join(" | "));
    }

    const SHORT: [&str; 3] = ["shop", "web", "acme"];
    const LONG: [&str; 3] =
        ["the-longest-project-that-anybody-has-ever-started", "storefront", "acme-corporation"];

    #[test]
    fn a_short_name_has_all_its_parts() {
        let slug = "preview".parse().unwrap();
        let branch = "Feature/Cart_2".parse().unwrap();
        check(SHORT, Subject::Live, &expect!["shop-web-acme | shop-web-acme-d56f9c"]);
        check(
            SHORT,
            Subject::Environment(&slug),
            &expect!["shop-web-preview-acme | shop-web-preview-acme-d56f9c"],
        );
        check(
            SHORT,
            Subject::Branch(&branch),
            &expect!["shop-web-git-feature-cart-2-acme | shop-web-git-feature-cart-2-acme-d56f9c"],
        );
        check(
            SHORT,
            Subject::Deployment(DeploymentId::sample(77)),
            &expect!["shop-web-0000002d-acme | shop-web-0000002d-acme-d56f9c"],
        );
    }

    #[test]
    fn a_long_name_is_cut_and_marked() {
        let long = [&LONG[0][..48], LONG[1], LONG[2]];
        let branch = "renovate/everything-that-could-be-renovated-this-week".parse().unwrap();
        check(
            long,
            Subject::Live,
            &expect!["the-longest-project-that-anybody-has-ever-starte-storefr-d56f9c"],
        );
        check(
            long,
            Subject::Branch(&branch),
            &expect!["the-lon-git-renovate-everything-that-could-be-ren-a85253-d56f9c"],
        );
        check(
            long,
            Subject::Deployment(DeploymentId::sample(77)),
            &expect!["the-longest-project-that-anybody-has-ever-start-0000002d-d56f9c"],
        );
    }

    #[test]
    fn branches_that_look_alike_stay_apart() {
        let branches = ["日本", "中国", "a日", "a中", &"x".repeat(60), &"x".repeat(61), "main"];
        let labels: BTreeSet<String> = branches
            .iter()
            .flat_map(|branch| labels(SHORT, Subject::Branch(&branch.parse().unwrap())))
            .collect();
        assert_eq!(labels.len(), 2 * branches.len(), "{labels:?}");
    }

    prop_compose! {
        fn any_slug()(text in "[a-z0-9]([-a-z0-9]{0,46}[a-z0-9])?") -> Slug {
            text.parse().unwrap()
        }
    }

    proptest! {
        #[test]
        fn every_name_is_a_label(
            workspace in any_slug(), project in any_slug(), app in any_slug(), environment in any_slug(),
            branch in "\\PC{1,200}|[a-z/_-]{1,100}", value: u128,
        ) {
            let app_id = AppId::from_u128(value);
            let naming = Naming { workspace: &workspace, project: &project, app: &app, app_id };
            let branch: Option<Branch> = branch.parse().ok();
            let mut subjects =
                vec![Subject::Live, Subject::Environment(&environment), Subject::Deployment(DeploymentId::from_u128(value))];
            subjects.extend(branch.as_ref().map(Subject::Branch));
            for subject in subjects {
                let labels = naming.candidates(subject);
                let marked = labels.last().unwrap();
                prop_assert!(marked.as_str().ends_with(&mark(&app_id.to_string())));
                prop_assert!(marked.as_str().starts_with(&project.as_str()[..1]));
                prop_assert!(labels.len() == 1 || labels[0] != labels[1]);
            }
        }

        #[test]
        fn deployments_of_one_app_never_share_a_name(
            workspace in any_slug(), project in any_slug(), app in any_slug(), a in 0..1_u128 << 40, b in 0..1_u128 << 40,
        ) {
            prop_assume!(a != b);
            let naming = Naming { workspace: &workspace, project: &project, app: &app, app_id: AppId::sample(1) };
            let labels = |number| naming.candidates(Subject::Deployment(DeploymentId::from_u128(number)));
            let (a, b) = (labels(a), labels(b));
            prop_assert!(a.iter().all(|label| !b.contains(label)), "{a:?} {b:?}");
        }
    }
}
