# Builds the gems that scenarios declare, and an index of them that can be read as files.
require "fileutils"
require "rubygems/package"
require "zlib"

source = File.expand_path(ARGV.fetch(0))
gems = [
  ["sound", "1.0.0", { "lib/sound.rb" => "module Sound; VERSION = '1.0.0'; end" }],
  ["sound", "2.0.0", { "lib/sound.rb" => "module Sound; VERSION = '2.0.0'; end" }],
  ["faulty", "1.0.0", { "lib/faulty.rb" => "raise 'faulty cannot be loaded'" }],
  ["crooked", "1.0.0", { "lib/crooked.rb" => "", "ext/extconf.rb" => "abort 'crooked refuses to be built'" }],
]
FileUtils.mkdir_p(%w[gems quick/Marshal.4.8].map { |name| File.join(source, name) })
Gem::DefaultUserInteraction.ui = Gem::SilentUI.new
specs = gems.map do |name, version, files|
  Dir.chdir(FileUtils.mkdir_p(File.join(source, "build", "#{name}-#{version}")).first) do
    files.each do |path, text|
      FileUtils.mkdir_p(File.dirname(path))
      File.write(path, text)
    end
    spec = Gem::Specification.new(name, version) do |gem|
      gem.summary, gem.authors, gem.license = "for scenarios", ["Recurgent"], "MIT"
      gem.homepage, gem.files = "http://127.0.0.1/", files.keys
      gem.extensions = files.keys.grep(/extconf/)
    end
    FileUtils.mv(Gem::Package.build(spec, true), File.join(source, "gems"))
    spec
  end
end
specs.each do |spec|
  path = File.join(source, "quick", "Marshal.4.8", "#{spec.full_name}.gemspec.rz")
  File.binwrite(path, Zlib::Deflate.deflate(Marshal.dump(spec)))
end
index = specs.map { |spec| [spec.name, spec.version, "ruby"] }
{ "specs" => index, "latest_specs" => index, "prerelease_specs" => [] }.each do |name, tuples|
  Zlib::GzipWriter.open(File.join(source, "#{name}.4.8.gz")) { |file| file.write(Marshal.dump(tuples)) }
end
