# Builds one gem with an extension and its compact index: `ruby hostile_goods.rb DIRECTORY`, where its
# `plan.json` and `extconf.rb` are.
require "digest"
require "fileutils"
require "rubygems/package"

Gem::DefaultUserInteraction.ui = Gem::SilentUI.new
Dir.chdir(ARGV.fetch(0))
FileUtils.mkdir_p(%w[gem/lib gem/ext gems info])
FileUtils.cp(%w[plan.json extconf.rb], "gem/ext")
File.write("gem/lib/hostile.rb", "require 'json'\nHOSTILE = JSON.parse(File.read(File.join(__dir__, 'got.json')))\n")
Dir.chdir("gem") do
  spec = Gem::Specification.new("hostile", "1.0.0") do |gem|
    gem.summary, gem.authors, gem.license = "for tests", ["Recurgent"], "MIT"
    gem.homepage, gem.files = "http://127.0.0.1/", %w[lib/hostile.rb ext/plan.json ext/extconf.rb]
    gem.extensions = ["ext/extconf.rb"]
  end
  FileUtils.mv(Gem::Package.build(spec, true), "../gems")
end
info = "---\n1.0.0 |checksum:#{Digest::SHA256.file('gems/hostile-1.0.0.gem').hexdigest}\n"
File.write("info/hostile", info)
File.write("versions", "created_at: 2026-01-01T00:00:00Z\n---\nhostile 1.0.0 #{Digest::MD5.hexdigest(info)}\n")
File.write("names", "---\nhostile\n")
