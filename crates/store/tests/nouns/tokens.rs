//! Tokens that take each other's place, and the first of them.

use std::time::Duration;

use model::{
    id::TokenId,
    time::Millis,
    token::{Scope, Token, TokenHash},
};
use store::{Error, Topic};

use super::{AT, CAUSE, Ground, here};

const OVERLAP: Duration = Duration::from_mins(10);

fn old() -> Token {
    let agent = Token::sample().with_scope(Scope::Agent { placement: here() });
    Token { name: "agents of the east".parse().unwrap(), ..agent }
}

/// What the caller of a rotation has to say of the new one.
fn new() -> Token {
    let hash = TokenHash([8; 32]);
    Token {
        id: TokenId::sample(2),
        hash,
        created_at: AT,
        expires_at: Some(Millis(AT.0 * 2)),
        ..Token::sample()
    }
}

pub async fn a_rotated_token_overlaps_with_its_successor(ground: Ground) {
    ground.write(async |write| write.put_token(&old(), &CAUSE).await).await;
    let rotate = async |write: &mut store::Write| write.rotate_token(old().id, &new(), OVERLAP, &CAUSE).await;
    let (rotated, stamped) = ground.stamped(rotate).await;
    assert_eq!(stamped, ["tokens.version"; 2]);
    assert_eq!(rotated, Token { name: old().name, scope: old().scope, ..new() });
    assert_eq!(ground.store.token(rotated.id).await.unwrap(), rotated);
    let end = Millis(AT.0 + 600_000);
    assert_eq!(ground.store.token(old().id).await.unwrap(), Token { expires_at: Some(end), ..old() });
    let item = ground.item(&Topic::Tokens, &rotated.id).await.unwrap();
    assert_eq!(item.change, CAUSE.change);
    // As after a commit whose answer was lost.
    assert_eq!(ground.stamped(rotate).await, (rotated, vec![]));
}

pub async fn a_rotation_never_makes_a_token_live_longer(ground: Ground) {
    let soon = Token { expires_at: Some(Millis(AT.0 + 5)), ..old() };
    ground.write(async |write| write.put_token(&soon, &CAUSE).await).await;
    ground.write(async |write| write.rotate_token(soon.id, &new(), OVERLAP, &CAUSE).await).await;
    assert_eq!(ground.store.token(soon.id).await.unwrap(), soon);
}

pub async fn a_revoked_token_is_not_rotated(ground: Ground) {
    let revoked = Token { revoked_at: Some(AT), ..old() };
    ground.write(async |write| write.put_token(&revoked, &CAUSE).await).await;
    let rotate =
        async |write: &mut store::Write| write.rotate_token(revoked.id, &new(), OVERLAP, &CAUSE).await;
    let rotated = ground.attempt(rotate).await;
    assert!(matches!(rotated, Err(Error::Conflict(_))), "{rotated:?}");
    let unknown = ground.store.token(new().id).await;
    assert_eq!(unknown, Err(Error::NotFound(new().id.to_string())));
}

pub async fn a_new_store_has_no_user_token(ground: Ground) {
    assert!(!ground.store.has_tokens().await.unwrap());
    ground.write(async |write| write.put_token(&old(), &CAUSE).await).await;
    assert!(!ground.store.has_tokens().await.unwrap(), "an agent's opens no API");
    ground
        .write(async |write| {
            write.put_token(&Token { id: new().id, hash: new().hash, ..Token::sample() }, &CAUSE).await
        })
        .await;
    assert!(ground.store.has_tokens().await.unwrap());
}
