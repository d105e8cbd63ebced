// render.mjs PAGE...: each MDX page as HTML, compiled as Astro does it (tables, typographic quotes), as a JSON list.
import { readFile } from 'node:fs/promises'
import { evaluate } from '@mdx-js/mdx'
import { h } from 'preact'
import * as runtime from 'preact/jsx-runtime'
import { render } from 'preact-render-to-string'
import remarkFrontmatter from 'remark-frontmatter'
import remarkGfm from 'remark-gfm'
import remarkSmartypants from 'remark-smartypants'

const pages = []
for (const path of process.argv.slice(2)) {
  const text = await readFile(path, 'utf8')
  const { default: Page } = await evaluate(text, {
    ...runtime,
    remarkPlugins: [remarkFrontmatter, remarkGfm, remarkSmartypants]
  })
  pages.push(render(h(Page)))
}
process.stdout.write(JSON.stringify(pages))
