use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use millrace_config::Config;
use millrace_plugin::wasm::{Sandbox, SandboxSettings};
use millrace_repository::{Claims, SecretKey, generate, sign, sign_file};
use millrace_testkit::Random;

use super::*;
use crate::model::principals::payers_of_processes;
use crate::plugins::loader::Loader;

/// Returns a module that does nothing. Modules with different `salt` have different bytes.
fn module(name: &str, version: &str, salt: &str) -> Vec<u8> {
    module_with(r#""capabilities": ["packet-read"]"#, name, version, salt)
}

/// Returns a module that does nothing. `keys` are added to its manifest.
fn module_with(keys: &str, name: &str, version: &str, salt: &str) -> Vec<u8> {
    let manifest = format!(
        r#"{{"abi": 1, "name": "{name}", "version": "{version}", "summary": "For tests.", "positions": ["late"], {keys}}}"#
    );
    let text = format!(
        r#"(module (@custom "millrace.manifest" "{}") (@custom "salt" "{salt}")
            (memory (export "memory") 4)
            (func (export "millrace_abi") (result i32) i32.const 1)
            (func (export "millrace_reserve") (param i32) (result i32) i32.const 1024)
            (func (export "millrace_release") (param i32 i32))
            (func (export "millrace_init") (param i32 i32) (result i32) i32.const 0)
            (func (export "millrace_packets") (param i32)))"#,
        manifest.replace('"', "\\\"")
    );
    wat::parse_str(text).unwrap()
}

/// Model and loader under test, in a temporary directory with a signing key. Dropping the value removes the
/// directory.
struct Bench {
    folder: PathBuf,
    sandbox: Sandbox,
    model: Model,
    key: PathBuf,
}

impl Bench {
    /// Creates a bench whose model trusts the bench's own signing key. `more` holds further lines of the
    /// model's configuration.
    fn new(test: &str, more: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-load-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let made = generate(&folder.join("test.key")).unwrap();
        let config = format!("[plugins]\nkeys = [\"{}\"]\n{more}", made.key);
        let model = Model::new(&Config::parse(&config, "test").unwrap()).unwrap();
        let sandbox = Sandbox::new(SandboxSettings::default()).unwrap();
        Self { folder, sandbox, model, key: made.secret }
    }

    fn write(&self, file: &str, bytes: &[u8]) -> String {
        let path = self.folder.join(file);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }

    /// Writes a module and its signature.
    fn write_signed(&self, file: &str, module: &[u8]) -> String {
        let path = self.write(file, module);
        sign_file(Path::new(&path), &self.key).unwrap();
        path
    }

    /// Compiles in this process instead of the compiling process.
    fn compile(&self, module: &[u8]) -> Result<WasmPlugin, String> {
        self.sandbox.compile(module).map_err(|error| error.to_string())
    }

    /// Loads a plugin as the router does.
    fn load_as(&mut self, path: &str, allow_downgrade: bool) -> Result<&'static str, String> {
        let admitted = Admitted::of(&self.model);
        let new = NewPlugin { path: path.to_owned(), allow_downgrade, runtime: ObjectRuntime::InProcess };
        let admit = |part, manifest: &Manifest, origin| admit_new(&self.model, part, manifest, origin, &new);
        let compile = |module: &[u8]| self.compile(module);
        let loaded = load_by(&admitted, &new, &admit, compile, compile);
        loaded.and_then(|loaded| enter(&mut self.model, loaded, &new)).map_err(|error| error.to_string())
    }

    fn load(&mut self, path: &str) -> Result<&'static str, String> {
        self.load_as(path, false)
    }

    fn unload(&mut self, name: &str) {
        self.model.plugins.remove_plugin(name).unwrap();
        self.model.repository.unloaded(name);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn signed_plugin_is_loaded_with_its_signer() {
    let mut bench = Bench::new("signed", "");
    let path = bench.write_signed("a.wasm", &module("a", "1.0.0", ""));
    assert_eq!(bench.load(&path), Ok("a"));
    let plugins = crate::show::plugins(&bench.model);
    let signature = |name: &str| plugins.iter().find(|one| one.name == name).unwrap().signature.clone();
    assert!(signature("a").unwrap().starts_with("signed by "));
    assert_eq!(signature("null"), None);
}

#[test]
fn no_plugin_is_loaded_of_which_a_bit_was_changed() {
    let mut bench = Bench::new("bits", "");
    let good = module("a", "1.0.0", "");
    let path = bench.write_signed("a.wasm", &good);
    let beside = format!("{path}.minisig");
    let signature = fs::read(&beside).unwrap();
    let (mut random, mut loads) = (Random::new(1), 0);
    for round in 0..1000 {
        let (whole, file) = if round % 2 == 0 { (&good, &path) } else { (&signature, &beside) };
        let mut bytes = whole.clone();
        let bit = random.below(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(file, bytes).unwrap();
        loads += usize::from(bench.load(&path).is_ok());
        fs::write(file, whole).unwrap();
    }
    assert_eq!(loads, 0);
    assert_eq!(bench.load(&path), Ok("a"));
}

#[test]
fn plugin_signed_by_an_unknown_key_is_refused() {
    let mut bench = Bench::new("key", "");
    let path = bench.write("a.wasm", &module("a", "1.0.0", ""));
    let other = generate(&bench.folder.join("other.key")).unwrap();
    sign_file(Path::new(&path), &other.secret).unwrap();
    let refused = bench.load(&path).unwrap_err();
    assert!(refused.contains(&other.key.id().to_string()) && refused.contains("[plugins] keys"), "{refused}");
}

#[test]
fn unsigned_plugin_is_loaded_only_if_allowed() {
    let mut strict = Bench::new("refuse", "");
    let path = strict.write("a.wasm", &module("a", "1.0.0", ""));
    assert!(strict.load(&path).unwrap_err().contains("it is unsigned"));
    // An unsigned file is refused without being parsed: a file that is no module gets the same error.
    let junk = strict.write("junk.wasm", b"junk");
    assert!(strict.load(&junk).unwrap_err().contains("it is unsigned"));
    let mut lax = Bench::new("allow", "unsigned = \"allow\"");
    let path = lax.write("a.wasm", &module("a", "1.0.0", ""));
    assert_eq!(lax.load(&path), Ok("a"));
    assert_eq!(lax.model.repository.origin("a"), Some(Origin::Unsigned));
}

#[test]
fn a_signature_of_another_plugin_is_of_no_use() {
    let mut bench = Bench::new("other", "");
    let (a, b) = (module("a", "1.0.0", ""), module("b", "1.0.0", ""));
    let first = bench.write_signed("a.wasm", &a);
    let second = bench.write("b.wasm", &b);
    fs::copy(format!("{first}.minisig"), format!("{second}.minisig")).unwrap();
    assert!(bench.load(&second).unwrap_err().contains("does not match"));
    // The signature is valid for these bytes, but states the name and version of another plugin.
    let made = generate(&bench.folder.join("second.key")).unwrap();
    let claims = Claims { name: "a".into(), version: "1.0.0".into(), capabilities: vec!["packet-read"] };
    let key: SecretKey = fs::read_to_string(&made.secret).unwrap().parse().unwrap();
    let trust = Arc::new(Trust::new(vec![made.key], None));
    let admitted = Admitted { trust, shared_objects: SharedObjects::Refuse, objects: Objects::RunHere };
    fs::write(format!("{second}.minisig"), sign(&b, &claims, &key).unwrap()).unwrap();
    let compile = |module: &[u8]| bench.compile(module);
    let unsigned =
        NewPlugin { path: second.clone(), allow_downgrade: false, runtime: ObjectRuntime::default() };
    let refused = load_by(&admitted, &unsigned, &|_, _, _| Ok(()), compile, compile);
    let refused = refused.err().unwrap().to_string();
    assert!(refused.contains("name=a") && refused.contains("name=b"), "{refused}");
}

#[test]
fn version_downgrade_is_refused_unless_allowed() {
    let mut bench = Bench::new("back", "");
    let new = bench.write_signed("new.wasm", &module("a", "1.10.0", ""));
    let old = bench.write_signed("old.wasm", &module("a", "1.9.0", ""));
    bench.load(&new).unwrap();
    bench.unload("a");
    let refused = bench.load(&old).unwrap_err();
    assert!(refused.contains("1.9.0") && refused.contains("--allow-downgrade"), "{refused}");
    assert_eq!(bench.load_as(&old, true), Ok("a"));
    bench.unload("a");
    assert!(bench.load(&old).is_err());
    assert_eq!(bench.load(&new), Ok("a"));
}

#[test]
fn plugin_without_a_stored_version_record_is_not_loaded() {
    let mut bench = Bench::new("forgets", "");
    // The lock file is made unusable, so no version can be stored.
    let state = bench.folder.join("state");
    fs::create_dir_all(state.join("lock")).unwrap();
    let memory = Memory::open(Some(&state));
    let key = fs::read_to_string(bench.key.with_extension("pub")).unwrap();
    let config = format!("[plugins]\nkeys = [\"{}\"]\n", key.lines().last().unwrap());
    let config = Config::parse(&config, "test").unwrap();
    bench.model = Model::remembering(&config, memory, &Loader::new(&config)).unwrap();
    let path = bench.write_signed("a.wasm", &module("a", "1.0.0", ""));
    let refused = bench.load(&path).unwrap_err();
    assert!(refused.contains("store the plugin's version") && refused.contains("state/lock"), "{refused}");
    assert!(bench.model.plugins.plugin_named("a").is_err());
}

#[test]
fn file_replaced_after_reading_changes_nothing() {
    let bench = Bench::new("swap", "");
    let admitted = Admitted::of(&bench.model);
    let path = bench.write_signed("a.wasm", &module("a", "1.0.0", "good"));
    let file = PluginFile::read(Path::new(&path)).unwrap();
    bench.write_signed("a.wasm", &module("evil", "1.0.0", "bad"));
    let examined = file.examine(&admitted, module_manifest).ok().unwrap();
    let loaded =
        file.load(&admitted, ObjectRuntime::default(), examined.origin, |module| bench.compile(module));
    let loaded = loaded.ok().unwrap();
    assert_eq!(loaded.plugin.name(), "a");
    // Combines the module of one version of the file with the signature of another version. The check refuses
    // this pair.
    let mut mixed = PluginFile::read(Path::new(&path)).unwrap();
    mixed.module = file.module;
    assert!(mixed.examine(&admitted, module_manifest).err().unwrap().contains("does not match"));
}

#[test]
fn only_regular_files_of_a_bounded_size_are_read() {
    let bench = Bench::new("kinds", "");
    let refused = |path: &str| PluginFile::read(Path::new(path)).err().unwrap();
    let folder = bench.folder.display().to_string();
    assert!(refused(&folder).contains("not a regular file"));
    assert!(refused("/dev/zero").contains("not a regular file"));
    assert!(refused(&format!("{folder}/none.wasm")).contains("No such file"));
    let path = bench.write("a.wasm", b"x");
    bench.write("a.wasm.minisig", &[b'x'; MOST_SIGNATURE + 1]);
    assert!(refused(&path).contains("its signature"));
}

#[test]
fn a_key_that_is_none_is_an_error_of_the_configuration() {
    let config = Config::parse("[plugins]\nkeys = [\"RWno\"]\n", "test").unwrap();
    let error = Model::new(&config).err().unwrap().to_string();
    assert!(error.contains("plugins.keys") && error.contains("RWno"), "{error}");
}

/// Returns a shared object whose constructor creates the file `constructor-ran` in the folder; `None` without
/// a C compiler.
fn object(folder: &Path, name: &str, version: &str) -> Option<Vec<u8>> {
    object_with("", folder, name, version)
}

/// Returns a shared object like [`object`]. `keys` are added to its manifest.
fn object_with(keys: &str, folder: &Path, name: &str, version: &str) -> Option<Vec<u8>> {
    let marker = folder.join("constructor-ran").display().to_string();
    let manifest = format!(
        r#"{{\"abi\":1,\"name\":\"{name}\",\"version\":\"{version}\",\"summary\":\"For tests.\",\"positions\":[\"late\"]{keys}}}"#
    );
    let text = format!(
        "#include \"millrace.h\"
        #include <fcntl.h>
        #include <unistd.h>
        __attribute__((constructor)) static void begin(void) {{ close(open(\"{marker}\", O_CREAT | O_WRONLY, 0600)); }}
        MILLRACE_PLUGIN(\"{manifest}\");
        int32_t millrace_init(const uint8_t *settings, size_t bytes) {{ (void)settings, (void)bytes; return 0; }}
        void millrace_packets(struct millrace_call *call) {{ (void)call; }}"
    );
    let (source, built) = (folder.join("object.c"), folder.join("object.so"));
    fs::write(&source, text).unwrap();
    let kit = Path::new("../../sdk/c");
    let mut cc = std::process::Command::new("cc");
    cc.args(["-std=c11", "-shared", "-fPIC", "-fvisibility=hidden", "-I"]).arg(kit).arg("-o").arg(&built);
    let Ok(done) = cc.arg(&source).status() else {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "there is no cc");
        println!("skipped: there is no cc");
        return None;
    };
    assert!(done.success());
    Some(fs::read(built).unwrap())
}

#[test]
fn shared_objects_are_loaded_only_where_that_is_allowed() {
    let mut strict = Bench::new("objects-refuse", "unsigned = \"allow\"");
    let Some(bytes) = object(&strict.folder, "a", "1.0.0") else { return };
    let path = strict.write("a.so", &bytes);
    let refused = strict.load(&path).unwrap_err();
    assert!(refused.contains("runs without a sandbox"), "{refused}");
    assert!(refused.contains("shared-objects = \"allow\""), "{refused}");
    let mut lax = Bench::new("objects-allow", "unsigned = \"allow\"\nshared-objects = \"allow\"");
    let path = lax.write("a.so", &bytes);
    assert_eq!(lax.load(&path), Ok("a"));
    let plugins = crate::show::plugins(&lax.model);
    let runtime = |name: &str| plugins.iter().find(|one| one.name == name).unwrap().runtime;
    assert_eq!((runtime("a"), runtime("null")), ("trusted: a shared object, not sandboxed", "built in"));
}

#[test]
fn a_shared_object_is_signed_and_checked_like_a_module() {
    let mut bench = Bench::new("objects-signed", "shared-objects = \"allow\"");
    let Some(bytes) = object(&bench.folder, "a", "1.0.0") else { return };
    let path = bench.write("a.so", &bytes);
    assert!(bench.load(&path).unwrap_err().contains("it is unsigned"));
    let path = bench.write_signed("a.so", &bytes);
    let mut changed = bytes.clone();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(&path, changed).unwrap();
    assert!(bench.load(&path).is_err());
    fs::write(&path, bytes).unwrap();
    assert_eq!(bench.load(&path), Ok("a"));
}

#[test]
fn version_downgrade_of_a_host_companion_is_refused() {
    let mut bench = Bench::new("slow-version", "");
    let fast = bench
        .write_signed("fast.wasm", &module_with(r#""host-companion": "slow.wasm""#, "fast", "1.0.0", ""));
    let mut load = |version: &str, allowed| {
        bench.write_signed("slow.wasm", &module_with(r#""capabilities": ["log"]"#, "slow", version, ""));
        let loaded = bench.load_as(&fast, allowed);
        if loaded.is_ok() {
            bench.unload("fast");
        }
        loaded
    };
    load("1.1.0", false).unwrap();
    let refused = load("1.0.9", false).unwrap_err();
    assert!(refused.contains("its host companion: ") && refused.contains("1.1.0"), "{refused}");
    load("1.0.9", true).unwrap();
    load("1.2.0", false).unwrap();
    load("1.1.0", false).unwrap_err();
}

#[test]
fn no_constructor_runs_before_name_version_and_signer_are_checked() {
    let mut bench = Bench::new("objects-claims", "shared-objects = \"allow\"");
    let Some(old) = object(&bench.folder, "a", "1.9.0") else { return };
    let Some(new) = object(&bench.folder, "a", "1.10.0") else { return };
    let marker = bench.folder.join("constructor-ran");
    let refused = |bench: &mut Bench, path: &str, word: &str| {
        let _ = fs::remove_file(&marker);
        let refused = bench.load(path).unwrap_err();
        assert!(refused.contains(word), "{refused}");
        assert!(!marker.exists(), "{word}: the constructor ran");
    };
    // The signature states the name of another plugin.
    let path = bench.write("claims.so", &old);
    let key: SecretKey = fs::read_to_string(&bench.key).unwrap().parse().unwrap();
    let claims = Claims { name: "b".into(), version: "1.9.0".into(), capabilities: vec![] };
    fs::write(format!("{path}.minisig"), sign(&old, &claims, &key).unwrap()).unwrap();
    refused(&mut bench, &path, "name=b");
    // Both a name in use and a downgrade are refused.
    let (older, newer) = (bench.write_signed("old.so", &old), bench.write_signed("new.so", &new));
    bench.load(&newer).unwrap();
    assert!(marker.exists(), "what is admitted runs");
    refused(&mut bench, &newer, "\"a\"");
    bench.unload("a");
    refused(&mut bench, &older, "--allow-downgrade");
    assert_eq!(bench.load_as(&older, true), Ok("a"));
}

#[test]
fn no_constructor_runs_before_the_host_companion_is_checked() {
    let mut bench = Bench::new("objects-slow", "shared-objects = \"allow\"");
    let keys = r#",\"host-companion\":\"slow.wasm\""#;
    let Some(bytes) = object_with(keys, &bench.folder, "fast", "1.0.0") else { return };
    let path = bench.write_signed("fast.so", &bytes);
    let marker = bench.folder.join("constructor-ran");
    let slow = |keys: &str, version: &str| module_with(keys, "slow", version, "");
    let log = r#""capabilities": ["log"]"#;
    let refused = |bench: &mut Bench, word: &str| {
        let refused = bench.load(&path).unwrap_err();
        assert!(refused.contains("host companion") && refused.contains(word), "{refused}");
        assert!(!marker.exists(), "{word}: the constructor ran");
    };
    refused(&mut bench, "No such file");
    bench.write("slow.wasm", &slow(log, "1.1.0"));
    refused(&mut bench, "unsigned");
    bench.write_signed("slow.wasm", &bytes);
    refused(&mut bench, "it is a shared object");
    bench.write_signed("slow.wasm", &slow(r#""capabilities": ["log"], "host-companion": "x.wasm""#, "1.1.0"));
    refused(&mut bench, "it has a host companion itself");
    // The manifest is correct, but a function body doesn't match the type of the function.
    let mut broken = slow(log, "1.1.0");
    let code = broken.windows(4).position(|code| code == [0x41, 0x80, 0x08, 0x0b]).unwrap();
    broken[code] = 0x42;
    bench.write_signed("slow.wasm", &broken);
    refused(&mut bench, "type mismatch");
    bench.write_signed("slow.wasm", &slow(log, "1.1.0"));
    assert_eq!(bench.load(&path), Ok("fast"));
    assert!(marker.exists(), "what is admitted runs");
    bench.unload("fast");
    fs::remove_file(&marker).unwrap();
    bench.write_signed("slow.wasm", &slow(log, "1.0.0"));
    refused(&mut bench, "--allow-downgrade");
}

#[test]
fn a_plan_runs_no_constructor() {
    let mut bench = Bench::new("objects-plan", "shared-objects = \"allow\"");
    let Some(bytes) = object(&bench.folder, "a", "1.0.0") else { return };
    let path = bench.write_signed("a.so", &bytes);
    let admitted = Admitted { objects: Objects::Describe, ..Admitted::of(&bench.model) };
    let compile = |module: &[u8]| bench.compile(module);
    let new = NewPlugin { path: path.clone(), allow_downgrade: false, runtime: ObjectRuntime::default() };
    let loaded = load_by(&admitted, &new, &|_, _, _| Ok(()), compile, compile).ok().unwrap();
    assert_eq!((loaded.plugin.name(), loaded.plugin.version()), ("a", "1.0.0"));
    assert!(!bench.folder.join("constructor-ran").exists());
    assert_eq!(bench.load(&path), Ok("a"));
}

#[test]
fn plugin_processes_belong_to_the_only_principal_that_pays() {
    let bench = Bench::new("payers", "");
    let Some(bytes) = object(&bench.folder, "a", "1.0.0") else { return };
    let path = bench.write("a.so", &bytes);
    let payers = |principals: [&str; 2]| {
        let binds = principals.iter().zip(["i", "j"]).map(|(principal, instance)| {
            format!(
                "[[instance]]\nplugin = \"a\"\nname = \"{instance}\"\n[[bind]]\ninstance = \"{instance}\"\n\
                     gate = \"monitor\"\nfilter = \"proto udp dport 1\"\nprincipal = \"{principal}\"\n"
            )
        });
        let config = format!(
            "[router]\non-death = \"kernel\"\n[plugins]\nshared-objects = \"allow\"\nunsigned = \"allow\"\n\
             [[plugin]]\nfile = \"{path}\"\n[[principal]]\nname = \"v\"\n[[principal]]\nname = \"w\"\n{}",
            binds.collect::<String>()
        );
        let config = Config::parse(&config, "test").unwrap();
        let loader = Loader::new(&config).planning();
        let model = Model::remembering(&config, Memory::open(None), &loader)
            .unwrap_or_else(|error| panic!("{error}"));
        let payers = payers_of_processes(&model);
        let name = |id| model.principal_ids.name(id).to_owned();
        let names = |ids: BTreeSet<_>| ids.into_iter().map(name).collect::<Vec<_>>();
        payers.into_iter().map(|(plugin, ids)| (plugin, names(ids))).collect::<Vec<_>>()
    };
    let names = |names: &[&str]| vec![("a", names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())];
    assert_eq!(payers(["v", "v"]), names(&["v"]));
    assert_eq!(payers(["default", "default"]), names(&["default"]));
    assert_eq!(payers(["v", "w"]), names(&["v", "w"]));
    assert_eq!(payers(["default", "v"]), names(&["default", "v"]));
}
