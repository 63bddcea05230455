//! What only a real socket shows.

use super::*;

async fn any_port(config: HttpConfig) -> Server {
    Server::bind(SocketAddr::from(([127, 0, 0, 1], 0)), config, None).await.unwrap()
}

/// Tells who asked, and how.
async fn echo(request: Request<Incoming>) -> Response<Answer> {
    let PeerAddress(peer) = request.extensions().get().unwrap();
    whole(format!("{:?} from {peer}", request.version()))
}

#[tokio::test]
async fn both_versions_are_answered_on_one_port_and_know_their_peer() {
    let server = any_port(HttpConfig::default()).await;
    let address = server.address();
    let (tasks, clients) = (Tasks::new(), Tasks::new());
    let (clock, random) = (Clock::system(), Random::system());
    tokio::join!(server.run(Answering(echo), &tasks, &clock, &random), async {
        for (version, name) in [(Version::HTTP_11, "HTTP/1.1"), (Version::HTTP_2, "HTTP/2.0")] {
            let stream = TcpStream::connect(address).await.unwrap();
            let own = stream.local_addr().unwrap();
            let mut client = Client::over(stream, version, &clients).await;
            let answer = text(client.get().await.unwrap().into_body()).await.unwrap();
            assert_eq!(answer, format!("{name} from {own}"));
        }
        assert!(tasks.stop(DEADLINE).await.is_clean());
    });
}

#[tokio::test]
async fn a_stopping_server_gives_its_port_back_at_once() {
    let server = any_port(HttpConfig::default()).await;
    let address = server.address();
    let (tasks, clients) = (Tasks::new(), Tasks::new());
    let (clock, random) = (Clock::system(), Random::system());
    let gate = CancellationToken::new();
    let answer = {
        let gate = gate.clone();
        move |_| std::future::ready(halves(gate.clone()))
    };
    tokio::join!(server.run(Answering(answer), &tasks, &clock, &random), async {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut client = Client::over(stream, Version::HTTP_2, &clients).await;
        let mut body = client.get().await.unwrap().into_body();
        assert_eq!(next(&mut body).await, "first ");

        tasks.token().cancel();
        // The farewell is sent by another task than the one that holds the port; both run here in turn.
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        gate.cancel();
        assert_eq!(text(body).await.unwrap(), "second");
        assert!(tasks.stop(DEADLINE).await.is_clean());
    });
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = any_port(HttpConfig::default()).await;
    let error = Server::bind(taken.address(), HttpConfig::default(), None).await.err().unwrap();
    assert_eq!(error.to_string(), format!("cannot listen on {}", taken.address()));
    assert!(std::error::Error::source(&error).is_some());
}
