//! What a config says of where a store is.
use radixkv_net::*;
use std::ffi::{CStr, CString};

/// What a store says whose config is refused.
fn refused(url: Option<&str>, change: fn(&mut rkv_net_store_config)) -> String {
    let url = url.map(|url| CString::new(url).unwrap());
    let mut config = rkv_net_store_config {
        struct_size: size_of::<rkv_net_store_config>() as u32,
        flags: 0,
        url: url.as_ref().map_or(std::ptr::null(), |url| url.as_ptr()),
        prefix: std::ptr::null(),
        endpoint: std::ptr::null(),
        ttl_s: 0,
        connection_count: 0,
        reserved: 0,
        ca_file: std::ptr::null(),
    };
    change(&mut config);
    let mut made = std::ptr::null_mut();
    let mut text = [0u8; 256];
    // SAFETY: everything is there during the calls.
    let status = unsafe {
        let status = rkv_net_store_create(&config, &mut made);
        rkv_net_last_error_message(text.as_mut_ptr().cast(), text.len());
        status
    };
    assert!(status == rkv_net_status::InvalidArgument && made.is_null());
    CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned()
}

/// What a config says wrong is named.
#[test]
fn urls_that_are_none_are_named() {
    let wrong = [
        None,
        Some(""),
        Some("redis"),
        Some("http://localhost"),
        Some("redis://"),
        Some("s3://"),
        Some("s3:///folder"),
        Some("s3://bu cket"),
        Some("s3://bucket?versions"),
        Some("s3://bucket#part/folder"),
        Some("s3://%41/folder"),
        Some("s3://.."),
        Some("redis://host:port"),
    ];
    for url in wrong {
        let text = refused(url, |_| {});
        assert!(text.starts_with("config.url"), "{url:?}: {text}");
    }
    let good = Some("redis://127.0.0.1:1");
    assert!(refused(good, |config| config.flags = 1).starts_with("config.flags"));
    assert!(refused(good, |config| config.reserved = 1).starts_with("config.reserved"));
    let many = refused(good, |config| config.connection_count = 257);
    assert!(many.starts_with("config.connection_count"));
    let endpoint = refused(good, |config| config.endpoint = c"http://x".as_ptr());
    assert!(endpoint.starts_with("config.endpoint"));
    let ttl = refused(Some("s3://bucket"), |config| config.ttl_s = 1);
    assert!(ttl.starts_with("config.ttl_s"));
    let for_ever = refused(good, |config| config.ttl_s = u64::MAX);
    assert!(for_ever.starts_with("config.ttl_s"), "{for_ever}");
    let too_long = refused(good, |config| config.ttl_s = (1 << 40) + 1);
    assert!(too_long.starts_with("config.ttl_s"), "{too_long}");
    let no_tls = refused(good, |config| config.ca_file = c"/x".as_ptr());
    assert!(no_tls.starts_with("config.ca_file"));
    let secure = Some("rediss://127.0.0.1:1");
    let no_file = refused(secure, |config| config.ca_file = c"/there/is/none".as_ptr());
    assert!(no_file.starts_with("config.ca_file"), "{no_file}");
    let no_certificates = refused(secure, |config| config.ca_file = c"/dev/null".as_ptr());
    assert!(no_certificates.starts_with("config."), "{no_certificates}");
    let size = refused(good, |config| config.struct_size = 8);
    assert!(size.starts_with("config: struct_size"));
    // SAFETY: NULL is refused, and destroyed without a word.
    unsafe {
        assert_eq!(rkv_net_store_last_failure(std::ptr::null(), std::ptr::null_mut(), 0), 0);
        rkv_net_store_destroy(std::ptr::null_mut());
    }
}

/// T13: of an endpoint that is none no request is made, each of which would panic. Nor is one shown
/// that has a password.
#[test]
fn t13_endpoints_that_are_none_are_named() {
    let wrong: [fn(&mut rkv_net_store_config); 13] = [
        |config| config.endpoint = c"".as_ptr(),
        |config| config.endpoint = c"localhost".as_ptr(),
        |config| config.endpoint = c"localhost:9000".as_ptr(),
        |config| config.endpoint = c"http://".as_ptr(),
        |config| config.endpoint = c"http:localhost".as_ptr(),
        |config| config.endpoint = c"http:///localhost".as_ptr(),
        |config| config.endpoint = c"ftp://localhost".as_ptr(),
        |config| config.endpoint = c"http://localhost:99999".as_ptr(),
        |config| config.endpoint = c"http://local%68ost".as_ptr(),
        |config| config.endpoint = c"http://localhost/a b".as_ptr(),
        |config| config.endpoint = c"http://localhost?a=b".as_ptr(),
        |config| config.endpoint = c"http://localhost#part".as_ptr(),
        |config| config.endpoint = c"http://me:secret@localhost".as_ptr(),
    ];
    for (at, change) in wrong.into_iter().enumerate() {
        let text = refused(Some("s3://bucket"), change);
        assert!(text.starts_with("config.endpoint") && !text.contains("secret"), "{at}: {text}");
    }
}
