"""A model makes requests harder or changes their subject, and completes them (Evol-Instruct).

Source: Xu et al., "WizardLM: Empowering Large Language Models to Follow Complex Instructions" (2023).
"""
