//! Tests that dry runs and refused requests run no code of the plugins in a submitted configuration.

use std::fs;
use std::path::{Path, PathBuf};

use millrace_config::Config;
use millrace_controller::operation::CompareConfiguration;
use millrace_controller::view::DifferenceView;
use millrace_controller::{
    Apply, ControlError, Keep, Operation, Overrides, Principal, Role, Router, StartOptions, start,
};

/// Returns the text of a configuration. `plugins` holds keys of `[plugins]`, and `more` follows the port.
fn text(plugins: &str, more: &str) -> String {
    format!(
        "[plugins]\nstate = \"none\"\ncache = \"none\"\n{plugins}\n\
         [[port]]\nname = \"lan\"\nkind = \"memory\"\naddress = [\"10.1.0.1/24\"]\n{more}"
    )
}

/// Folder with a shared object whose constructor creates a file.
struct Object {
    folder: PathBuf,
    file: PathBuf,
}

impl Object {
    /// Builds the shared object; `None` without a C compiler.
    fn build(test: &str) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("millrace-dry-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (source, file) = (folder.join("object.c"), folder.join("object.so"));
        let marker = folder.join("constructor-ran").display().to_string();
        let code = format!(
            "#include \"millrace.h\"\n#include <fcntl.h>\n#include <unistd.h>\n\
             __attribute__((constructor)) static void begin(void) {{ close(open(\"{marker}\", O_CREAT | O_WRONLY, 0600)); }}\n\
             MILLRACE_PLUGIN(\"{{\\\"abi\\\":1,\\\"name\\\":\\\"marker\\\",\\\"version\\\":\\\"1.0.0\\\",\\\"summary\\\":\\\"For tests.\\\",\\\"positions\\\":[\\\"late\\\"]}}\");\n\
             int32_t millrace_init(const uint8_t *s, size_t n) {{ (void)s; (void)n; return 0; }}\n\
             void millrace_packets(struct millrace_call *call) {{ (void)call; }}\n"
        );
        fs::write(&source, code).unwrap();
        let mut cc = std::process::Command::new("cc");
        cc.args(["-shared", "-fPIC", "-fvisibility=hidden", "-I"]).arg(Path::new("../../sdk/c"));
        let Ok(done) = cc.arg("-o").arg(&file).arg(&source).status() else {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "there is no cc");
            println!("skipped: there is no cc");
            return None;
        };
        assert!(done.success());
        Some(Self { folder, file })
    }

    /// Returns the text that loads the shared object and binds an instance of it.
    fn loaded(&self) -> String {
        let file = self.file.display();
        format!(
            "[[plugin]]\nfile = \"{file}\"\nruntime = \"in-process\"\n[[instance]]\nplugin = \"marker\"\nname = \"m\"\n\
             [[bind]]\ninstance = \"m\"\ngate = \"monitor\"\nfilter = \"proto udp\"\n"
        )
    }

    fn has_run(&self) -> bool {
        self.folder.join("constructor-ran").exists()
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn with_router(plugins: &str, work: impl AsyncFn(Router)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = Config::parse(&text(plugins, ""), "base.toml").unwrap();
        let router = start(config, StartOptions::default()).await.unwrap();
        work(router.clone()).await;
        router.shutdown().await.unwrap();
    });
}

/// Executes an operation as a caller with this role.
async fn ask<O: Operation>(router: &Router, role: Role, operation: O) -> Result<O::Answer, ControlError> {
    router.execute(&Principal { role: Some(role), ..Principal::router() }, operation).await
}

async fn compare(router: &Router, role: Role, text: &str) -> Result<DifferenceView, ControlError> {
    ask(router, role, CompareConfiguration { text: Some(text.to_owned()), origin: Some("x.toml".to_owned()) })
        .await
}

/// Returns a policy that refuses all plugins, because its trusted key has signed none of them.
fn refusing(folder: &Path) -> String {
    let key = millrace_repository::generate(&folder.join("test.key")).unwrap().key;
    format!("shared-objects = \"refuse\"\nunsigned = \"refuse\"\nkeys = [\"{key}\"]")
}

/// Policy that the attacker's configuration sets.
const ALLOWING: &str = "shared-objects = \"allow\"\nunsigned = \"allow\"";

#[test]
fn a_difference_runs_no_constructor_of_a_submitted_shared_object() {
    let Some(object) = Object::build("difference") else { return };
    with_router(&refusing(&object.folder), async |router| {
        let refused = compare(&router, Role::Admin, &text(ALLOWING, &object.loaded())).await;
        assert!(!object.has_run(), "{refused:?}");
        assert!(refused.is_err());
    });
}

#[test]
fn refused_apply_runs_no_constructor() {
    let Some(object) = Object::build("apply") else { return };
    with_router(&refusing(&object.folder), async |router| {
        let order = Apply { text: text(ALLOWING, &object.loaded()), ..Apply::default() };
        let refused = ask(&router, Role::Admin, order).await;
        assert!(!object.has_run(), "{refused:?}");
        assert!(refused.is_err());
    });
}

#[test]
fn difference_describes_an_admitted_shared_object_without_running_it() {
    let Some(object) = Object::build("described") else { return };
    with_router("shared-objects = \"allow\"", async |router| {
        let submitted = text("shared-objects = \"allow\"", &object.loaded());
        let difference = compare(&router, Role::Admin, &submitted).await.unwrap();
        assert_eq!(difference.changes.len(), 3, "{difference:?}");
        assert!(!object.has_run());
        let late = submitted.replace("monitor", "early");
        let refused = compare(&router, Role::Admin, &late).await.unwrap_err().to_string();
        assert!(refused.contains("early") && !object.has_run(), "{refused}");
        ask(&router, Role::Admin, Apply { text: submitted, ..Apply::default() }).await.unwrap();
        assert!(object.has_run(), "what is applied runs");
    });
}

#[test]
fn a_check_of_a_file_runs_no_constructor() {
    let Some(object) = Object::build("check") else { return };
    let config = Config::parse(&text("shared-objects = \"allow\"", &object.loaded()), "x.toml").unwrap();
    millrace_controller::check(&config).unwrap();
    assert!(!object.has_run());
}

#[test]
fn an_operator_compares_only_texts_with_the_plugins_and_callers_that_run() {
    with_router("", async |router| {
        let compare = async |text: &str| compare(&router, Role::Operator, text).await;
        let route = "[[route]]\nto = \"10.9.0.0/16\"\nvia = \"10.1.0.254\"\n";
        assert_eq!(compare(&text("", route)).await.unwrap().changes.len(), 1);
        for (plugins, more, table) in [
            ("shared-objects = \"allow\"", "", "[plugins]"),
            ("", "[[plugin]]\nfile = \"/etc/shadow\"\n", "[[plugin]]"),
            ("", "[api]\ngroups = { users = \"admin\" }\n", "[api]"),
        ] {
            let refused = compare(&text(plugins, more)).await.unwrap_err();
            assert!(matches!(&refused, ControlError::Forbidden(_, why) if why.contains(table)), "{refused}");
        }
        let state = text("", "").replace("state = \"none\"", "state = \"/tmp/elsewhere\"");
        assert!(matches!(compare(&state).await, Err(ControlError::Forbidden(..))));
        // If the text has a syntax error elsewhere, no file is read.
        let wrong = text("", "[[plugin]]\nfile = \"/etc/shadow\"\n[[route]]\nto = \"10.9.0.0\"\n");
        let refused = compare(&wrong).await.unwrap_err().to_string();
        assert!(!refused.contains("shadow"), "{refused}");
    });
}

#[test]
fn operator_stores_no_revision_with_more_permissions_than_the_running_one() {
    let Some(object) = Object::build("keep") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let said = text("shared-objects = \"allow\"", &object.loaded());
        let overrides = Overrides { listen: vec!["127.0.0.1:8443".parse().unwrap()], ..Overrides::default() };
        let config = Config::parse(&said, "base.toml").unwrap();
        let source = millrace_controller::Source { origin: "base.toml".into(), text: said.clone() };
        let options = StartOptions { overrides, source: Some(source), ..StartOptions::default() };
        let router = start(config, options).await.unwrap();
        let keep =
            async |text: String, role| ask(&router, role, Keep { text: Some(text), ..Keep::default() }).await;
        let downgrade = said.replace("object.so\"", "object.so\"\nallow-downgrade = true");
        let listening = format!("{said}[api]\nlisten = [\"0.0.0.0:8443\"]\n");
        keep(said.clone(), Role::Operator).await.unwrap();
        let runtime = said.replace("in-process", "process");
        for (text, word) in [(downgrade, "allow-downgrade"), (runtime, "runtime"), (listening, "api.listen")]
        {
            let refused = keep(text.clone(), Role::Operator).await.unwrap_err();
            assert!(matches!(&refused, ControlError::Forbidden(_, why) if why.contains(word)), "{refused}");
            // Another runtime is a difference that no override hides, so nobody stores it.
            assert_eq!(keep(text, Role::Admin).await.is_ok(), word != "runtime");
        }
        router.shutdown().await.unwrap();
    });
}
