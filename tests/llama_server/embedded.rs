//! What is embedded or ranked takes slots as well, and answers nobody from the cache.
use super::server::{Server, random_model, scratch};
use super::{OWN, tokens};

/// What one user has embedded is no prompt of another's (T15, T07).
#[test]
fn t15_what_is_embedded_is_its_users() {
    let (model, folder) = (random_model("llama", 1), scratch("embedded"));
    let prompt = tokens(44, 200);
    let refused = |server: &Server, path: &str, content: &str, user: &str| {
        let body = format!(r#"{{{content}, "cache_salt": {user}}}"#);
        let (status, said) = server.post(path, &body);
        assert_eq!(status, 400, "{path}: {said}");
        assert!(said.contains("cache_salt"), "{path}: {said}");
    };
    let embeds = ["--parallel", "1", "--embeddings"];
    let content = format!(r#""content": {prompt:?}"#);
    let server = Server::start(&folder, &model, &embeds);
    server.embed(&prompt, r#", "cache_salt": "anna""#);
    assert_eq!(server.complete(&prompt, 1, "").cached, 0, "{}", server.said());
    refused(&server, "/embedding", &content, "7");
    server.stop();
    // A server that keeps nobody apart says so here too.
    let server = Server::start(&folder, &model, &[OWN, &embeds].concat());
    refused(&server, "/embedding", &content, r#""anna""#);
    server.stop();
    // Who ranks is a user as well.
    let ranks = ["--parallel", "1", "--reranking"];
    let server = Server::start(&folder, &model, &[OWN, &ranks].concat());
    refused(&server, "/v1/rerank", r#""query": "a", "documents": ["b"]"#, r#""anna""#);
    server.stop();
}

/// What is embedded takes a slot with everything: no checkpoint of another prompt becomes one of
/// its tokens (T15).
#[test]
fn t15_an_embedding_leaves_no_checkpoint_of_another_prompt() {
    let (model, folder) = (random_model("mamba", 1), scratch("embedded_over"));
    let options = ["--parallel", "1", "--embeddings"];
    let embedded = tokens(251, 400);
    let prompt = [&embedded[..350], &tokens(252, 20)].concat();
    let own = Server::start(&folder, &model, &[OWN, &options].concat());
    let right = own.complete(&prompt, 24, "").tokens;
    own.stop();
    let server = Server::start(&folder, &model, &options);
    // Its checkpoint is at 296 tokens.
    server.complete(&tokens(250, 300), 1, "");
    server.embed(&embedded, "");
    let reply = server.complete(&prompt, 24, "");
    assert_eq!((reply.cached, reply.tokens), (0, right), "{}", server.said());
    server.stop();
}

/// Who embeds reads nothing again: what is embedded is not kept (T15).
#[test]
fn t15_what_is_embedded_is_not_kept() {
    let (model, folder) = (random_model("llama", 1), scratch("embedded_not_kept"));
    for slots in ["1", "2"] {
        let options = ["--parallel", slots, "--kv-unified", "--embeddings"];
        let server = Server::start(&folder, &model, &options);
        for seed in 280..284 {
            server.embed(&tokens(seed, 200), "");
        }
        server.rest();
        assert!(!server.said().contains("kept a prompt"), "{}", server.said());
        // A chat after it is, also one that goes on with what was embedded.
        let prompt = [&tokens(283, 200)[..], &tokens(284, 20)].concat();
        assert_eq!(server.complete(&prompt, 8, "").cached, 200, "{}", server.said());
        server.rest();
        assert!(server.says("kept a prompt of 227 tokens"), "{}", server.said());
        // Nor does it stay in a slot whose memory others share.
        assert_eq!(server.complete(&tokens(282, 200), 1, "").cached, 0, "{}", server.said());
        server.stop();
    }
}

/// An embedding keeps nothing of its slot, however much of it it has in common: a chat that is not
/// kept yet is kept before (T15).
#[test]
fn t15_a_chat_is_kept_before_it_is_embedded() {
    let (model, folder) = (random_model("llama", 1), scratch("embedded_chat"));
    let server = Server::start(&folder, &model, &["--parallel", "1", "--embeddings"]);
    let chat = tokens(290, 300);
    server.complete(&chat, 8, "");
    server.embed(&chat, "");
    server.complete(&tokens(291, 200), 1, "");
    let next = [&chat[..], &tokens(292, 20)].concat();
    assert!(server.complete(&next, 1, "").cached >= 299, "{}", server.said());
    server.stop();
}
