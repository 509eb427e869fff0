"""The start page: first steps, the pages, and the suite file under the cursor."""
