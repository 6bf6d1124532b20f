//! S3, and what speaks its protocol.
use super::{Answer, Config, Done, Last, Put};
use crate::failure::Failure;
use bytes::BytesMut;
use futures_util::StreamExt;
use http::Uri;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse};
use object_store::client::{HttpService, ReqwestConnector};
use object_store::path::Path;
use object_store::{ClientConfigKey, ClientOptions, Error, ObjectStore, RetryConfig};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use url::Url;

/// Requests at once, of all calls together that read, and as many of those that write.
const REQUESTS: usize = 64;
/// What no request takes longer than: calls have less time.
const LONGEST: Duration = Duration::from_secs(600);
/// The part of a call's time that is left when requests without an answer are given up: what was
/// answered is to be there in time, and the call none that took too long.
const REST: u32 = 8;
/// Bytes of what a server says of an error, at most: more is neither read nor told.
const SAID: usize = 4096;

/// Connects as it is done otherwise, and bounds what is said of errors.
#[derive(Debug)]
struct Bounding;

impl HttpConnector for Bounding {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient, Error> {
        Ok(HttpClient::new(Bounded(ReqwestConnector::default().connect(options)?)))
    }
}

#[derive(Debug)]
struct Bounded(HttpClient);

impl HttpService for Bounded {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let answer = self.0.execute(request).await?;
            // Of other errors whoever asked reads nothing.
            if !answer.status().is_client_error() {
                return Ok(answer);
            }
            // It is collected, however long it is.
            let (head, body) = answer.into_parts();
            let (mut said, mut pieces) = (Vec::new(), body.bytes_stream());
            while said.len() < SAID
                && let Some(Ok(piece)) = pieces.next().await
            {
                said.extend_from_slice(&piece[..piece.len().min(SAID - said.len())]);
            }
            let text = String::from_utf8_lossy(&said).into_owned();
            Ok(HttpResponse::from_parts(head, text.into()))
        })
    }
}

/// Refuses what no request can be made of: the client finds that out with each, and panics.
fn check_place(builder: &AmazonS3Builder, bucket: &str) -> Result<(), Failure> {
    let in_headers = [
        (AmazonS3ConfigKey::AccessKeyId, "AWS_ACCESS_KEY_ID"),
        (AmazonS3ConfigKey::Token, "AWS_SESSION_TOKEN"),
        (AmazonS3ConfigKey::Region, "AWS_REGION"),
    ];
    for (key, name) in in_headers {
        let value = builder.get_config_value(&key).unwrap_or_default();
        if !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            let text = format!("{name} has a space, a line end or another such character");
            return Err(Failure::argument(text));
        }
    }
    let (place, text) = match builder.get_config_value(&AmazonS3ConfigKey::Endpoint) {
        Some(endpoint) => {
            // Not shown: there may be a password in it.
            let text = "config.endpoint, or AWS_ENDPOINT, is not http://HOST:PORT or \
                        https://HOST:PORT";
            (endpoint, text.to_owned())
        }
        None => {
            let region = builder.get_config_value(&AmazonS3ConfigKey::Region);
            let region = region.as_deref().unwrap_or("us-east-1");
            let place = format!("https://{bucket}.s3.{region}.amazonaws.com");
            let text = format!("config.url: with AWS_REGION it makes {place}, which is no URL");
            (place, text)
        }
    };
    if is_place(&place) { Ok(()) } else { Err(Failure::argument(text)) }
}

/// Whether URLs begin with it, by both rules that the client goes by. Names are put behind it, and
/// all of it is told when a request fails: a password would be, too.
fn is_place(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else { return false };
    let is_of_http = matches!(uri.scheme_str(), Some("http" | "https"));
    is_of_http && !text.contains(['?', '#', '@']) && Url::parse(&uri.to_string()).is_ok()
}

/// That there is no such object says of a value that is asked for that it isn't there. To who
/// writes it says that there is no bucket.
fn found(done: Result<Answer, Error>) -> Result<Answer, Error> {
    match done {
        Err(Error::NotFound { .. }) => Ok(Answer::Missing),
        done => done,
    }
}

#[derive(Debug)]
pub struct Objects {
    bucket: Arc<AmazonS3>,
    folder: String,
    reads: Arc<Semaphore>,
    /// No read waits behind writes.
    writes: Arc<Semaphore>,
    last: Last,
}

impl Objects {
    pub fn new(config: &Config, last: Last) -> Result<Self, Failure> {
        if config.ttl != 0 {
            let text = "config.ttl_s is for Redis alone: a bucket has lifecycle rules";
            return Err(Failure::argument(text));
        }
        if config.ca_file.is_some() {
            return Err(Failure::argument("config.ca_file is for rediss:// and valkeys://"));
        }
        let rest = config.url.strip_prefix("s3://").unwrap_or_default();
        let (bucket, folder) = rest.split_once('/').unwrap_or((rest, ""));
        // It becomes a part of URLs as it is. Some servers have a tenant before a colon.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        if bucket.trim_matches('.').is_empty() || !bucket.bytes().all(is_plain) {
            return Err(Failure::argument("config.url is not s3://BUCKET or s3://BUCKET/FOLDER"));
        }
        let folder = folder.trim_matches('/');
        let folder = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        // One attempt: who asks has little time, and asks again.
        let retries = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        // Of what the environment says of connections no more than these two is replaced.
        let timeout = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_config(timeout, format!("{}s", LONGEST.as_secs()))
            .with_allow_http(true)
            .with_retry(retries)
            .with_http_connector(Bounding);
        if let Some(endpoint) = &config.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        check_place(&builder, bucket)?;
        let made = builder.build();
        let bucket = made.map_err(|error| Failure::argument(format!("config.url: {error}")))?;
        let turns = || Arc::new(Semaphore::new(REQUESTS));
        Ok(Self { bucket: Arc::new(bucket), folder, reads: turns(), writes: turns(), last })
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}{name}", self.folder))
    }

    /// One request for each of some values, several at once. One that is late costs no other.
    async fn each<T, F>(
        &self,
        turns: &Arc<Semaphore>,
        time: Duration,
        values: Vec<T>,
        request: impl Fn(Arc<AmazonS3>, T) -> F,
    ) -> Done
    where
        F: Future<Output = Result<Answer, Error>> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        let mut answers = vec![Answer::Failed; values.len()];
        for (at, value) in values.into_iter().enumerate() {
            let (request, turns) = (request(self.bucket.clone(), value), turns.clone());
            tasks.spawn(async move {
                let _turn = turns.acquire_owned().await;
                (at, request.await)
            });
        }
        let mut failed = None;
        let mut late = std::pin::pin!(tokio::time::sleep(time - time / REST));
        // A task that is given up with this one ends.
        loop {
            let done = tokio::select! {
                biased;
                done = tasks.join_next() => done,
                () = &mut late => {
                    // What was said of others says more.
                    failed.get_or_insert_with(|| {
                        format!("no answer within {} ms", time.as_millis())
                    });
                    break;
                }
            };
            let Some(done) = done else { break };
            match done {
                Ok((at, Ok(answer))) => answers[at] = answer,
                Ok((_, Err(error))) => failed = Some(error.to_string()),
                Err(error) => failed = Some(error.to_string()),
            }
        }
        self.last.judge(answers, failed)
    }

    pub async fn has(&self, names: Vec<String>, time: Duration) -> Done {
        let paths = names.iter().map(|name| self.path(name)).collect();
        let head = |bucket: Arc<AmazonS3>, path: Path| async move {
            found(bucket.head(&path).await.map(|_| Answer::Done))
        };
        self.each(&self.reads, time, paths, head).await
    }

    pub async fn get(&self, names: Vec<String>, rooms: &[u64], time: Duration) -> Done {
        let paths = names.iter().map(|name| self.path(name)).zip(rooms.iter().copied());
        let get = |bucket: Arc<AmazonS3>, (path, room): (Path, u64)| async move {
            let object = match bucket.get(&path).await {
                Ok(object) => object,
                Err(error) => return found(Err(error)),
            };
            // What has no room is nobody's value, however much more of it there is, and whatever
            // the server says of its length.
            let said = object.meta.size;
            if said > room {
                return Ok(Answer::Long(said));
            }
            let mut value = BytesMut::with_capacity(said as usize);
            let mut pieces = object.into_stream();
            while let Some(piece) = pieces.next().await.transpose()? {
                let length = (value.len() + piece.len()) as u64;
                if length > room {
                    return Ok(Answer::Long(length));
                }
                value.extend_from_slice(&piece);
            }
            Ok(Answer::Value(value.freeze()))
        };
        self.each(&self.reads, time, paths.collect(), get).await
    }

    pub async fn put(&self, puts: Vec<Put>, time: Duration) -> Done {
        let folder = &self.folder;
        let values = puts.into_iter().map(|put| (Path::from(format!("{folder}{}", put.key)), put));
        let put = |bucket: Arc<AmazonS3>, (path, put): (Path, Put)| async move {
            bucket.put(&path, put.value.into()).await.map(|_| Answer::Done)
        };
        self.each(&self.writes, time, values.collect(), put).await
    }

    pub async fn remove(&self, names: Vec<String>, time: Duration) -> Done {
        let paths = names.iter().map(|name| self.path(name)).collect();
        let remove = |bucket: Arc<AmazonS3>, path: Path| async move {
            found(bucket.delete(&path).await.map(|()| Answer::Done))
        };
        self.each(&self.writes, time, paths, remove).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(builder: AmazonS3Builder, bucket: &str) -> Option<String> {
        check_place(&builder, bucket).err().map(|failure| failure.message)
    }

    /// T13: what the environment says is looked at before requests are made of it.
    #[test]
    fn t13_an_environment_that_makes_no_request_is_named() {
        let new = AmazonS3Builder::new;
        let named = |builder, name: &str| {
            let text = refused(builder, "bucket").unwrap();
            assert!(text.starts_with(name) && !text.contains("secret"), "{text}");
        };
        named(new().with_access_key_id("secret\n"), "AWS_ACCESS_KEY_ID");
        named(new().with_token("secret\n"), "AWS_SESSION_TOKEN");
        named(new().with_region("eu west"), "AWS_REGION");
        named(new().with_region("eu#west"), "config.url");
        named(new().with_endpoint("host:9000"), "config.endpoint, or AWS_ENDPOINT");
        assert!(refused(new(), "tenant:bucket").is_some(), "a port");
    }

    #[test]
    fn t13_places_of_other_servers_are_good() {
        for endpoint in [
            "http://localhost",
            "http://127.0.0.1:9000/",
            "HTTPS://[::1]:9000",
            "https://gateway.example.com/storage/s3",
        ] {
            let builder = AmazonS3Builder::new().with_endpoint(endpoint).with_token("a+/=");
            assert_eq!(refused(builder, "tenant:bucket"), None, "{endpoint}");
        }
        for bucket in ["bucket", "Old_Bucket.1", "bucket--use1-az4--x-s3"] {
            assert_eq!(refused(AmazonS3Builder::new(), bucket), None, "{bucket}");
            let far = AmazonS3Builder::new().with_region("eu-west-3");
            assert_eq!(refused(far, bucket), None, "{bucket}");
        }
    }
}
