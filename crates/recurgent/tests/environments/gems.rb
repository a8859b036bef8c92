# Builds the gems of a source and its compact index, by hand: `ruby gems.rb DIRECTORY`.
require "digest"
require "json"
require "time"
require "fileutils"
require "rubygems/package"

SOURCE = File.expand_path(ARGV.fetch(0))
FAILING = "abort 'extconf refuses to go on'"

# name, version, needs, files; a gem with an extconf.rb has an extension to build.
GEMS = [
  ["alpha", "1.0.0", { "beta" => "~> 1.0" }, { "lib/alpha.rb" => "require 'beta'\nmodule Alpha; VERSION = '1.0.0'; end" }],
  ["alpha", "2.0.0", { "beta" => "~> 2.0" }, { "lib/alpha.rb" => "require 'beta'\nmodule Alpha; VERSION = '2.0.0'; end" }],
  ["beta", "1.0.0", {}, { "lib/beta.rb" => "module Beta; VERSION = '1.0.0'; GEM = Gem::Version.new(VERSION).to_s; end" }],
  ["beta", "2.0.0", {}, { "lib/beta.rb" => "module Beta; VERSION = '2.0.0'; GEM = Gem::Version.new(VERSION).to_s; end" }],
  ["unbuildable", "1.0.0", {}, { "lib/unbuildable.rb" => "module Unbuildable; end", "ext/extconf.rb" => FAILING }],
  ["faulty", "1.0.0", {}, { "lib/faulty.rb" => "raise 'faulty cannot be loaded'" }],
  ["sluggish", "1.0.0", {}, { "lib/sluggish.rb" => "module Sluggish; end", "ext/extconf.rb" => "sleep 3; File.write('Makefile', \"all:\\ninstall:\\nclean:\\n\")" }],
  ["native", "1.0.0", {}, {
    "lib/native.rb" => "require 'native/native'",
    "ext/native/extconf.rb" => "require 'mkmf'; create_makefile('native/native')",
    "ext/native/native.c" => "#include <ruby.h>\nstatic VALUE answer(VALUE self) { return INT2FIX(42); }\nvoid Init_native(void) { rb_define_global_function(\"native_answer\", answer, 0); }\n",
  }],
  ["needs-json", "1.0.0", { "json" => ">= 1.8", "bigdecimal" => ">= 1.0" }, { "lib/needs-json.rb" => "require 'json'\nrequire 'bigdecimal'\nmodule NeedsJson; end" }],
  ["needs-matrix", "1.0.0", { "matrix" => ">= 0.1" }, { "lib/needs-matrix.rb" => "require 'matrix'\nmodule NeedsMatrix; end" }],
  ["late", "1.0.0", {}, { "lib/late.rb" => "module Late; def self.answer = (require 'late/part'; PART); end", "lib/late/part.rb" => "module Late; PART = 42; end" }],
  ["late-native", "1.0.0", {}, {
    "lib/late-native.rb" => "module LateNative; def self.answer = (require 'late_native/part'; late_answer); end",
    "ext/late_native/extconf.rb" => "require 'mkmf'; create_makefile('late_native/part')",
    "ext/late_native/part.c" => "#include <ruby.h>\nstatic VALUE answer(VALUE self) { return INT2FIX(42); }\nvoid Init_part(void) { rb_define_global_function(\"late_answer\", answer, 0); }\n",
  }],
  ["verbose", "1.0.0", {}, { "lib/verbose.rb" => "", "ext/extconf.rb" => "puts 'checking for widget.h... no'\nputs 'a line that says nothing' * 20, $stdout.flush while (@n = @n.to_i + 1) < 400\nabort 'extconf gives up'" }],
  ["stuck", "1.0.0", {}, { "lib/stuck.rb" => "", "ext/extconf.rb" => "sleep" }],
  ["noisy", "1.0.0", {}, { "lib/noisy.rb" => "puts 'noise' * 50_000\nwarn 'noise' * 50_000\nmodule Noisy; end" }],
  ["hanging", "1.0.0", {}, { "lib/hanging.rb" => "sleep" }],
  ["dying", "1.0.0", {}, { "lib/dying.rb" => "warn 'going down'\nProcess.exit!(3)" }],
  ["young", "0.9.0", {}, { "lib/young.rb" => "module Young; VERSION = '0.9.0'; end" }],
  ["young", "1.0.0", {}, { "lib/young.rb" => "module Young; VERSION = '1.0.0'; end" }],
  ["dash-ed", "1.0.0", {}, { "lib/dash/ed.rb" => "module Dash; module Ed; end; end" }],
].freeze

def build((name, version, needs, files))
  Dir.chdir(FileUtils.mkdir_p(File.join(SOURCE, "build", "#{name}-#{version}")).first) do
    files.each do |path, text|
      FileUtils.mkdir_p(File.dirname(path))
      File.write(path, text)
    end
    spec = Gem::Specification.new(name, version) do |gem|
      gem.summary, gem.authors, gem.license = "for tests", ["Recurgent"], "MIT"
      gem.homepage, gem.files = "http://127.0.0.1/", files.keys
      gem.extensions = files.keys.grep(/extconf/)
      needs.each { |other, constraint| gem.add_dependency(other, constraint) }
    end
    built = Gem::Package.build(spec, true)
    FileUtils.mv(built, File.join(SOURCE, "gems"))
  end
end

FileUtils.mkdir_p(%w[gems info].map { |name| File.join(SOURCE, name) })
Gem::DefaultUserInteraction.ui = Gem::SilentUI.new
GEMS.each { |gem| build(gem) }
versions = "created_at: 2026-01-01T00:00:00Z\n---\n"
GEMS.group_by(&:first).each do |name, gems|
  lines = gems.map do |_, version, needs|
    digest = Digest::SHA256.file(File.join(SOURCE, "gems", "#{name}-#{version}.gem")).hexdigest
    "#{version} #{needs.map { |other, constraint| "#{other}:#{constraint}" }.join(',')}|checksum:#{digest}\n"
  end
  info = "---\n#{lines.join}"
  File.write(File.join(SOURCE, "info", name), info)
  versions << "#{name} #{gems.map { |gem| gem[1] }.join(',')} #{Digest::MD5.hexdigest(info)}\n"
end
published = File.join(SOURCE, "api", "v1", "versions")
FileUtils.mkdir_p(published)
old = "2020-01-01T00:00:00.000Z"
{ "beta" => { "1.0.0" => old, "2.0.0" => old }, "young" => { "0.9.0" => old, "1.0.0" => Time.now.utc.iso8601 } }.each do |name, dated|
  versions_of = dated.map { |number, at| { number: number, created_at: at } }
  File.write(File.join(published, "#{name}.json"), JSON.generate(versions_of))
end
File.write(File.join(SOURCE, "versions"), versions)
File.write(File.join(SOURCE, "names"), "---\n#{GEMS.map(&:first).uniq.join("\n")}\n")
