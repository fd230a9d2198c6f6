//! The formats of secrets that are redacted, with synthetic values that are put together at run time, and ordinary text
//! that is kept.

use super::super::*;

/// Random characters for the places of a template: `{a20}` are 20 letters and digits.
struct Values(u64);

impl Values {
    fn fill(&mut self, template: &str) -> String {
        let (mut text, mut rest) = (String::new(), template);
        while let Some((before, after)) = rest.split_once('{') {
            let (place, after) = after.split_once('}').expect("a place has an end");
            let (kind, count) = place.split_at(1);
            text.push_str(before);
            text.push_str(&self.random(kind, count.parse().expect("a count")));
            rest = after;
        }
        text + rest
    }

    fn random(&mut self, kind: &str, count: usize) -> String {
        let (lower, upper) = ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        let digits = "0123456789";
        let alphabet = match kind {
            "a" => format!("{lower}{upper}{digits}"),
            "t" => format!("{lower}{upper}{digits}-_"),
            "b" => format!("{lower}{upper}{digits}+/"),
            "l" => format!("{lower}{digits}"),
            "u" => format!("{upper}{digits}"),
            "h" => "0123456789abcdef".to_owned(),
            "d" => digits.to_owned(),
            _ => panic!("no characters of the kind `{kind}`"),
        };
        let mut next = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = usize::try_from(self.0 >> 33).unwrap() % alphabet.len();
            char::from(alphabet.as_bytes()[at])
        };
        let mut text: String = (0..count).map(|_| next()).collect();
        // Each kind but hex begins and ends so that the place is found whole; one digit is always there.
        if count > 3 && kind != "d" {
            text.replace_range(1..2, "7");
            text.replace_range(count - 1.., if kind == "u" { "Q" } else { "b" });
        }
        text
    }
}

/// Known by their own look, in log, trail and prompts alike.
const KEYS: [(&str, &str); 131] = [
    ("OpenAI", "sk-{a48}"),
    ("OpenAI project", "sk-proj-{t48}"),
    ("OpenAI service account", "sk-svcacct-{t48}"),
    ("OpenRouter", "sk-or-v1-{h64}"),
    ("Anthropic", "sk-ant-api03-{t93}AA"),
    ("Anthropic OAuth", "sk-ant-oat01-{t80}"),
    ("Groq", "gsk_{a52}"),
    ("Hugging Face", "hf_{a34}"),
    ("Replicate", "r8_{a37}"),
    ("Perplexity", "pplx-{a48}"),
    ("xAI", "xai-{a80}"),
    ("Fireworks", "fw_{a24}"),
    ("Together", "tgp_v1_{t43}"),
    ("Cerebras", "csk-{l48}"),
    ("NVIDIA", "nvapi-{t64}"),
    ("Tavily", "tvly-dev-{a32}"),
    ("Firecrawl", "fc-{h32}"),
    ("Jina", "jina_{a60}"),
    ("Pinecone", "pcsk_{t68}"),
    ("LlamaCloud", "llx-{a48}"),
    ("LangSmith", "lsv2_pt_{h32}_{h10}"),
    ("GitHub personal", "ghp_{a36}"),
    ("GitHub OAuth", "gho_{a36}"),
    ("GitHub user", "ghu_{a36}"),
    ("GitHub server", "ghs_{a36}"),
    ("GitHub refresh", "ghr_{a36}"),
    ("GitHub fine-grained", "github_pat_{a22}_{a59}"),
    ("GitLab personal", "glpat-{t20}"),
    ("GitLab deploy", "gldt-{t20}"),
    ("GitLab runner", "glrt-{t20}"),
    ("GitLab runner registration", "GR1348941{t20}"),
    ("GitLab trigger", "glptt-{h40}"),
    ("GitLab SCIM", "glsoat-{t20}"),
    ("GitLab feed", "glft-{t20}"),
    ("GitLab OAuth", "gloas-{h64}"),
    ("GitLab CI build", "glcbt-{h2}_{t20}"),
    ("GitLab mail", "glimt-{t25}"),
    ("GitLab agent", "glagent-{t50}"),
    ("GitLab feature flags", "glffct-{t20}"),
    ("Slack bot", "xoxb-{d12}-{d12}-{a24}"),
    ("Slack user", "xoxp-{d12}-{d12}-{h32}"),
    ("Slack client", "xoxc-{d12}-{d12}-{h64}"),
    ("Slack cookie", "xoxd-{a100}"),
    ("Slack rotated", "xoxe.xoxp-1-{t100}"),
    ("Slack app", "xapp-1-{u11}-{d13}-{h64}"),
    ("AWS access key", "AKIA{u16}"),
    ("AWS session key", "ASIA{u16}"),
    ("AWS Bedrock", "ABSK{b120}"),
    ("Google API", "AIza{t35}"),
    ("Google OAuth", "ya29.{t60}"),
    ("Google client secret", "GOCSPX-{t28}"),
    ("Google refresh", "1//0{t60}"),
    ("Azure client secret", "{a3}8Q~{t34}"),
    ("Alibaba", "LTAI{a20}"),
    ("Stripe live", "sk_live_{a24}"),
    ("Stripe test", "sk_test_{a24}"),
    ("Stripe restricted", "rk_live_{a24}"),
    ("Stripe webhook", "whsec_{a32}"),
    ("Square access", "sq0atp-{t22}"),
    ("Square secret", "sq0csp-{t43}"),
    ("Square OAuth", "EAAA{t60}"),
    ("Facebook", "EAAB{a120}"),
    ("Shopify", "shpat_{h32}"),
    ("Plaid", "access-production-{h8}-{h4}-{h4}-{h4}-{h12}"),
    ("SendGrid", "SG.{t22}.{t43}"),
    ("Mailgun", "key-{h32}"),
    ("Mailchimp", "{h32}-us12"),
    ("Brevo", "xkeysib-{h64}-{a16}"),
    ("Telegram bot", "{d9}:AA{t33}"),
    ("Discord bot", "M{a23}.{t6}.{t38}"),
    ("Discord MFA", "mfa.{t84}"),
    ("npm", "npm_{a36}"),
    ("PyPI", "pypi-AgEIcHlwaS5vcmc{t70}"),
    ("RubyGems", "rubygems_{h48}"),
    ("crates.io", "cio{a32}"),
    ("NuGet", "oy2{l43}"),
    ("Docker Hub", "dckr_pat_{t27}"),
    ("Artifactory", "AKCp{a69}"),
    ("Clojars", "CLOJARS_{l60}"),
    ("DigitalOcean", "dop_v1_{h64}"),
    ("DigitalOcean OAuth", "doo_v1_{h64}"),
    ("Heroku", "HRKU-{t60}"),
    ("Fly", "fm2_{b100}"),
    ("Netlify", "nfp_{a36}"),
    ("Render", "rnd_{a28}"),
    ("Cloudflare origin", "v1.0-{h24}-{h146}"),
    ("PlanetScale", "pscale_tkn_{t43}"),
    ("Supabase personal", "sbp_{h40}"),
    ("Supabase OAuth", "sbp_oauth_{h40}"),
    ("HubSpot", "pat-na1-{h8}-{h4}-{h4}-{h4}-{h12}"),
    ("Shippo", "shippo_live_{h40}"),
    ("E2B", "e2b_{h40}"),
    ("Supabase secret", "sb_secret_{t31}"),
    ("Databricks", "dapi{h32}"),
    ("Vault service", "hvs.{t90}"),
    ("Vault batch", "hvb.{t120}"),
    ("Vault recovery", "hvr.{t24}"),
    ("Terraform Cloud", "{a14}.atlasv1.{t67}"),
    ("Pulumi", "pul-{h40}"),
    ("Doppler", "dp.pt.{a43}"),
    ("1Password service account", "ops_eyJ{b200}"),
    ("1Password secret key", "A3-{u6}-{u6}-{u5}-{u5}-{u5}-{u5}"),
    ("Linear", "lin_api_{a40}"),
    ("Notion", "ntn_{a46}"),
    ("Notion old", "secret_{a43}"),
    ("Atlassian", "ATATT3xFfGF0{t170}"),
    ("Figma", "figd_{t40}"),
    ("Postman", "PMAK-{h24}-{h34}"),
    ("Typeform", "tfp_{t59}"),
    ("Contentful", "CFPAT-{t43}"),
    ("Sentry", "sntrys_{b100}"),
    ("New Relic", "NRAK-{u27}"),
    ("Grafana service account", "glsa_{a32}_{h8}"),
    ("Grafana cloud", "glc_{b100}"),
    ("Dynatrace", "dt0c01.{u24}.{u64}"),
    ("PostHog", "phx_{a43}"),
    ("LaunchDarkly", "sdk-{h8}-{h4}-{h4}-{h4}-{h12}"),
    ("Buildkite", "bkua_{h40}"),
    ("CircleCI", "CCIPAT_{a22}_{h40}"),
    ("SonarQube", "sqp_{h40}"),
    ("Tailscale", "tskey-auth-{a12}-{a32}"),
    ("OpenShift", "sha256~{t43}"),
    ("Vercel", "vcp_{a56}"),
    ("Brave Search", "BSA{a28}"),
    ("Modal id", "ak-{a22}"),
    ("Modal secret", "as-{a22}"),
    ("ClickUp", "pk_{d8}_{u32}"),
    ("Snyk", "snyk_uat.{h8}.{t64}"),
    ("age", "AGE-SECRET-KEY-1{u58}"),
    ("JSON web token", "eyJ{t30}.eyJ{t60}.{t43}"),
    ("private key", "-----BEGIN PRIVATE KEY-----\n{b64}\n-----END PRIVATE KEY-----"),
];

/// The secret stands between `<` and `>`. The first are redacted everywhere, the others only in log and trail.
const URLS: [&str; 5] = [
    "https://hooks.slack.com/services/<T{u8}/B{u10}/{a24}>",
    "https://hooks.slack.com/workflows/<T{u8}/A{u10}/{d18}/{a24}>",
    "https://discord.com/api/webhooks/<{d18}/{t68}>",
    "https://example.webhook.office.com/webhookb2/<{h32}@{h8}/IncomingWebhook/{h32}/{h12}>",
    "https://hooks.zapier.com/hooks/catch/<{d7}/{l7}>",
];
const NAMED: [&str; 53] = [
    "curl -u admin:<{a9}> https://example.org",
    "curl -u 'admin:<{a4} {a4}>' https://example.org",
    "curl --user admin:<{a9}> https://example.org",
    "curl --user=admin:<{a9}> https://example.org",
    "curl --proxy-user \"admin:<{a9}>\" https://example.org",
    "Cookie: <sessionid={a12}; theme=dark>",
    "Set-Cookie: <sid={a12}; HttpOnly>",
    "set-cookie: <connect.sid=s%3A{a12}>",
    "request with sessionid=<{l12}> failed",
    "PHPSESSID=<{l12}>",
    "JSESSIONID=<{u12}>",
    "laravel_session=<{a12}>",
    "curl -b connect.sid=<{a12}> https://example.org",
    "https://example.org/blob?sv=2024-11-04&se=2026-01-01&sig=<{a20}%2B{a20}%3D>&sp=r",
    "https://bucket.example.org/x?X-Amz-Expires=60&X-Amz-Signature=<{h20}>",
    "https://storage.example.org/x?X-Goog-Signature=<{h20}>",
    "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=<{b86}>==",
    "Endpoint=sb://x.example.org/;SharedAccessKey=<{b43}=>",
    "aws_secret_access_key = <{b40}>",
    "TWILIO_AUTH_TOKEN=<{h32}>",
    "twilio SID AC and <{h32}>",
    "DATADOG_API_KEY=<{h32}>",
    "Authorization: <Bearer {a12}>",
    "Authorization: <Basic {a12}>",
    "X-Api-Key: <{a12}>",
    "Proxy-Authorization: <Basic {a12}>",
    "postgres://app:<{a9}>@db.example.org/x",
    "redis://:<{a9}>@localhost:6379",
    "https://user:<{a9}>@example.org/x.git",
    "[\"client_secret\":\"<{a9}>\"]",
    "password=<{a9}>",
    "GH_TOKEN=<{a9}> make",
    "--api-key <{a9}>",
    "?access_token=<{a9}>&x=1",
    "sshpass -p <{a9}> ssh host",
    "mysql -u root -p<{a9}> shop",
    "docker login -u me -p <{a9}> registry.example.org",
    "htpasswd -b users me <{a9}>",
    "ldapsearch -D cn=me -w <{a9}> -b dc=x",
    "CREATE USER 'me' IDENTIFIED BY '<{a9}>'",
    "PAT=<{a12}>",
    "password is <{a9}>",
    "password => <{a9}>",
    "api key: <{a9}>",
    "passwd <{a9}>",
    "secret \"<{a9}>\"",
    "X-Api-Key <{a12}>",
    "connecting to app:<{a9}>@db.example.org:5432",
    "grant_type=x%26client_secret%3D<{a9}>%26y%3D1",
    "password=\u{1b}[31m<{a9}>\u{1b}[0m",
    "\u{1b}[1mpassword\u{1b}[0m=<{a9}>",
    "curl -b name=<{a12}> x",
    "mnemonic=<{a9}>",
];

/// The text of a template, and the same with a mark where the secret was.
fn marked(template: &str, values: &mut Values) -> (String, String) {
    let filled = values.fill(template);
    let (before, rest) = filled.split_once('<').expect("a secret begins");
    let (secret, after) = rest.split_once('>').expect("a secret ends");
    (format!("{before}{secret}{after}"), format!("{before}{MARK}{after}"))
}

#[test]
fn keys_of_every_known_format_are_redacted_at_both_levels() {
    let mut missed = Vec::new();
    for seed in 0..5 {
        let mut values = Values(seed);
        for (name, template) in KEYS {
            let secret = values.fill(template);
            for text in [
                secret.clone(),
                format!("failed with {secret}"),
                format!("(\"{secret}\")"),
                format!("x={secret}"),
                format!("\x1b[31m{secret}\x1b[0m"),
            ] {
                for level in [Redaction::Records, Redaction::Prompts] {
                    let redacted = redact(&text, level);
                    if redacted != text.replace(&secret, MARK) {
                        missed.push(format!("{name}, {level:?}: {text:?} became {redacted:?}"));
                    }
                }
            }
        }
    }
    assert!(missed.is_empty(), "{} missed:\n{}", missed.len(), missed.join("\n"));
}

#[test]
fn secrets_that_their_surroundings_tell_are_redacted() {
    let mut missed = Vec::new();
    let mut values = Values(7);
    for template in URLS {
        let (text, wanted) = marked(template, &mut values);
        for level in [Redaction::Records, Redaction::Prompts] {
            let redacted = redact(&text, level);
            if redacted != wanted {
                missed.push(format!("{level:?}: {text} became {redacted}"));
            }
        }
    }
    for template in NAMED {
        let (text, wanted) = marked(template, &mut values);
        let redacted = redact_text(&text);
        if redacted != wanted {
            missed.push(format!("{text} became {redacted}"));
        }
    }
    assert!(missed.is_empty(), "{} missed:\n{}", missed.len(), missed.join("\n"));
}

#[test]
fn values_that_only_a_name_tells_stay_in_prompts() {
    let mut values = Values(3);
    for template in NAMED {
        let (text, _) = marked(template, &mut values);
        assert_eq!(redact(&text, Redaction::Prompts), text);
    }
    for text in [
        "expected token: foo1, found token: bar2",
        "assertion failed: token=\"abc1\" is not token=\"abc2\"",
        "left: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "error[E0425]: cannot find value `password` in this scope: password = x1",
    ] {
        assert_eq!(redact(text, Redaction::Prompts), text);
    }
    let known = KnownSecrets::of([("API_KEY", "open sesame")]);
    let text = "token: foo1 and open sesame";
    assert_eq!(known.redact(text, Redaction::Prompts), "token: foo1 and [redacted]");
}

#[test]
fn ordinary_text_is_kept_at_both_levels() {
    let image = Values(1).fill("{b400}");
    let lines = [
        "/home/me/projects/afresh/target/debug/deps/afresh_core-6e8f38a3d638708b.d".to_owned(),
        r"C:\new\tools\npm_global\bin2\sk-learn-runner".to_owned(),
        "./node_modules/.pnpm/@types+node@22.10.2_abc123/node_modules/x".to_owned(),
        "commit 8f14e45fceea167a5a36dedd4bea2543f1e2d3c4 (HEAD -> main, origin/main)".to_owned(),
        "request 550e8400-e29b-41d4-a716-446655440000 took 12 ms".to_owned(),
        format!("data:image/png;base64,iVBORw0KGgo{image}=="),
        format!("data:image/gif;base64,R0lGODlh{image}"),
        format!("url(data:image/webp;base64,UklGR{image})"),
        format!("{{\"type\":\"image\",\"data\":\"/9j/{image}\"}}"),
        "+ react@19.0.0-rc.1 eslint@9.17.0 typescript@5.7.2 @scope/pkg@1.2.3-beta.4+build.5f3a"
            .to_owned(),
        "2026-11-18T05:41:23.456Z INFO server::http: GET /api/v1/users?page=2&limit=50 200 12ms"
            .to_owned(),
        "127.0.0.1 - - [18/Nov/2026:05:41:23 +0000] \"GET /index.html HTTP/1.1\" 200 2326"
            .to_owned(),
        "Nov 18 05:41:23 host sshd[4242]: Accepted publickey for me from 10.0.0.1 port 50022"
            .to_owned(),
        "npm warn deprecated inflight@1.0.6: This module is not supported".to_owned(),
        "thread 'main' panicked at src/main.rs:10:5: index out of bounds: the len is 3".to_owned(),
        "docker run -u 1000:1000 --user node:node -v /a:/b img".to_owned(),
        "rsync -u host:/var/log . && python -u app.py && git push -u origin main".to_owned(),
        "journalctl -u afresh.service --since 12:30:00".to_owned(),
        "curl -u $USER:$PASSWORD https://example.org".to_owned(),
        "key-value store, sdk-builder, pul-request, fc-list, re_export_all, fw_update_v2"
            .to_owned(),
        "mcp session_id=abc12345 is open, sessions=3".to_owned(),
        "https://hooks.slack.com/ and https://discord.com/api/docs are documented".to_owned(),
        "the ratio is 12345678:AA and us-east-1 is a region of eu-west-us2".to_owned(),
        "v1.0-rc1, v1.0-alpha.2, dp.pt is a point, SG.50 too".to_owned(),
        "example.com.foobar.net resolves, Module.method.call is a path".to_owned(),
        "EAAA is not AKIA, LTAI or ASIA; access-sandbox-logs-2024 is a folder".to_owned(),
    ];
    for text in lines {
        for level in [Redaction::Records, Redaction::Prompts] {
            assert_eq!(redact(&text, level), text);
        }
    }
}

#[test]
fn keys_are_found_in_escaped_text_and_the_escapes_stay() {
    let key = Values(5).fill("glpat-{t20}");
    let long = Values(6).fill("ghp_{a36}");
    for key in [key, long] {
        for (before, after) in [
            (r"a\n", r"\n"),
            (r"\t", r"\t"),
            (r"\u001b[31m", r"\u001b[0m"),
            ("%3D", "%26"),
            ("[1;31m", "\x1b[m"),
        ] {
            let text = format!("{before}{key}{after}");
            let wanted = format!("{before}{MARK}{after}");
            assert_eq!(redact(&text, Redaction::Records), wanted);
            assert_eq!(redact(&text, Redaction::Prompts), wanted);
        }
    }
}

#[test]
fn a_line_of_json_stays_one() {
    let known = KnownSecrets::of([("PIN_TOKEN", "12345678"), ("API_KEY", "open \"sesame\"")]);
    let key = Values(5).fill("ghp_{a36}");
    for said in [
        r#"curl -u admin:hunter2 -H "Cookie: a=b""#.to_owned(),
        "Authorization: Bearer abc123def\"x".to_owned(),
        "a\n-----BEGIN PRIVATE KEY-----\nMIIab1".to_owned(),
        format!("line\n{key}\n"),
        "password=\"abc\\\" d".to_owned(),
        "token='a\\'b".to_owned(),
        "open \"sesame\"".to_owned(),
        "https://hooks.slack.com/services/T1/B2/abc\nnext".to_owned(),
    ] {
        for line in [
            serde_json::json!({"type": "text", "text": said, "token": null, "auth": {"x": 1}}),
            serde_json::json!({"password": 4711, "auth": [1, {"secret": true}], "x": 12_345_678, "text": said}),
            serde_json::json!({"text": serde_json::json!({"inner": said}).to_string()}),
        ] {
            let redacted = known.redact_line(&line.to_string()).into_owned();
            assert!(serde_json::from_str::<Value>(&redacted).is_ok(), "{line}\n{redacted}");
            for secret in [
                "hunter2",
                "abc123def",
                "MIIab1",
                "sesame",
                "4711",
                "12345678",
                key.as_str(),
                "B2/abc",
            ] {
                assert!(!redacted.contains(secret), "{secret} in {redacted}");
            }
        }
    }
    // The names of secrets in numbers that are none.
    let line = r#"{"progressToken":7,"input_tokens":123456}"#;
    assert_eq!(known.redact_line(line), line);
}
